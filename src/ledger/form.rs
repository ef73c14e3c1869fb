//! A ledger as a serde type.

use super::words::{f16_words, squared, tag};
use super::{CELLS, CELLS_AT, F16_AT, F16_WORDS, TAG, refuse};
use crate::{Error, Ledger, NormType};

/// The ledger with names.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Form {
    /// What the numbers mean.
    version: u64,
    norm_type: NormType,
    scale: f32,
    divisor: f32,
    parts: u64,
    elements: u64,
    nan: u64,
    pos_inf: u64,
    neg_inf: u64,
    overflowing: u64,
    limit: u64,
    cells: [u64; CELLS],
    /// Of 32 bits each, lowest first.
    f16: [u64; F16_WORDS],
    checksum: u64,
}

/// Where the limit lies among the words.
const LIMIT_AT: usize = 9;

/// Apart from "gradclip" in the tag.
const VERSION: u64 = (TAG - u64::from_le_bytes(*b"gradclip")) >> 32;

impl From<Ledger> for Form {
    fn from(ledger: Ledger) -> Self {
        let [nan, pos_inf, neg_inf] = ledger.nonfinite();
        Self {
            version: VERSION,
            norm_type: ledger.norm_type(),
            scale: ledger.scale(),
            divisor: ledger.divisor(),
            parts: ledger.parts(),
            elements: ledger.elements(),
            nan,
            pos_inf,
            neg_inf,
            overflowing: ledger.overflowing(),
            limit: ledger.to_words()[LIMIT_AT],
            cells: *ledger.cells(),
            f16: f16_words(ledger.f16()),
            checksum: ledger.to_words()[Ledger::WORDS - 1],
        }
    }
}

impl TryFrom<Form> for Ledger {
    type Error = Error;

    fn try_from(form: Form) -> Result<Self, Error> {
        if form.version != VERSION {
            let version = form.version;
            return refuse(format!("it is of version {version}, and this crate's are of {VERSION}"));
        }
        let mut words = [0; Self::WORDS];
        words[0] = tag(form.norm_type).wrapping_mul(form.parts);
        words[1] = form.parts;
        words[2] = u64::from(form.scale.to_bits()).wrapping_mul(form.parts);
        words[3..8].copy_from_slice(&[form.elements, form.nan, form.pos_inf, form.neg_inf, form.overflowing]);
        words[8] = squared(form.scale.to_bits()).wrapping_mul(form.parts);
        words[LIMIT_AT] = form.limit;
        words[10] = u64::from(form.divisor.to_bits()).wrapping_mul(form.parts);
        words[11] = squared(form.divisor.to_bits()).wrapping_mul(form.parts);
        words[CELLS_AT..][..CELLS].copy_from_slice(&form.cells);
        words[F16_AT..][..F16_WORDS].copy_from_slice(&form.f16);
        words[Self::WORDS - 1] = form.checksum;
        Self::from_words(&words)
    }
}
