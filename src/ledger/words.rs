//! A ledger as words: what travels between ranks.

use super::{CELLS, CELLS_AT, F16_AT, F16_WORDS, MAX_ELEMENTS, MAX_PARTS, TAG, refuse};
use crate::exact::norm_partials::Ledger as Sums;
use crate::{Error, Ledger, LossScale, NormType};

impl Ledger {
    /// The ledger as words. The sum of such words of all parts, modulo 2^64 and word by word, is what
    /// [`Ledger::from_words`] takes for the merged ledger. A rank without a part adds zeros.
    #[must_use]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[0] = tag(self.norm_type).wrapping_mul(self.parts);
        words[1] = self.parts;
        words[2] = u64::from(self.scale).wrapping_mul(self.parts);
        words[3] = self.elements;
        words[4..7].copy_from_slice(&self.nonfinite);
        words[7] = self.overflowing;
        // With the sum of the scales it tells whether all are equal.
        words[8] = squared(self.scale).wrapping_mul(self.parts);
        words[9] = self.limit;
        words[10] = u64::from(self.divisor).wrapping_mul(self.parts);
        words[11] = squared(self.divisor).wrapping_mul(self.parts);
        words[CELLS_AT..][..CELLS].copy_from_slice(&self.sums.cells);
        words[F16_AT..][..F16_WORDS].copy_from_slice(&f16_words(self.sums.f16));
        words[Self::WORDS - 1] = checksum(&words[..Self::WORDS - 1]);
        words
    }

    /// The ledger of these words, or of a sum of such.
    ///
    /// # Errors
    /// [`Error::Ledger`] if there are not [`Ledger::WORDS`] of them, if they were damaged, are of a version in which they
    /// mean something else, or add up parts with different loss scales or norms, or more than 2^42 elements.
    pub fn from_words(words: &[u64]) -> Result<Self, Error> {
        let Ok(words) = <[u64; Self::WORDS]>::try_from(words) else {
            return refuse(format!("it has {} words, not {}", words.len(), Self::WORDS));
        };
        let (content, check) = words.split_at(Self::WORDS - 1);
        let (parts, elements, overflowing) = (words[1], words[3], words[7]);
        if parts == 0 || parts > MAX_PARTS {
            return refuse(format!("it says that it adds up {parts} parts, of 1 to 2^32; is it one at all?"));
        }
        let norm_type = [NormType::L1, NormType::L2]
            .into_iter()
            .find(|&norm_type| words[0] == tag(norm_type).wrapping_mul(parts));
        let Some(norm_type) = norm_type else {
            return refuse(
                "its first word is not that of this version's ledgers, or its parts were measured for different norms; \
                 let all ranks run one version and one norm"
                    .into(),
            );
        };
        if check != [checksum(content)] {
            return refuse("its checksum is wrong; it was damaged on the way".into());
        }
        let Some(scale) = mean([words[2], words[8]], parts) else {
            return refuse("its parts were measured with different loss scales".into());
        };
        let Some(divisor) = mean([words[10], words[11]], parts) else {
            return refuse("its parts were measured with different divisors".into());
        };
        if elements >= MAX_ELEMENTS {
            return refuse(format!("it adds up {elements} elements; its sums hold those of fewer than 2^42"));
        }
        let nonfinite = [words[4], words[5], words[6]];
        let mut cells = [0; CELLS];
        cells.copy_from_slice(&words[CELLS_AT..][..CELLS]);
        let counted = nonfinite.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
        let most = elements << 22;
        let f16 = f16_of(&words[F16_AT..][..F16_WORDS], parts);
        let f16 = f16.filter(|&sum| sum <= Self::most_f16(norm_type, elements));
        let fits = counted.is_some_and(|n| n <= elements)
            && overflowing <= parts
            && cells.iter().all(|&sum| sum <= most);
        let Some(f16) = f16.filter(|_| fits) else {
            return refuse(format!("its sums are too large for {elements} elements in {parts} parts"));
        };
        let sums = Sums { cells, f16 };
        let ledger = Self {
            norm_type,
            scale,
            divisor,
            parts,
            elements,
            nonfinite,
            overflowing,
            limit: words[9],
            sums,
        };
        Ok(ledger.counted())
    }

    /// The words in order, each little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The ledger of these bytes.
    ///
    /// # Errors
    /// As [`Ledger::from_words`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() != Self::BYTES {
            return refuse(format!("it has {} bytes, not {}", bytes.len(), Self::BYTES));
        }
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|b| b.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
            .collect();
        Self::from_words(&words)
    }
}

/// One part's share of the first word.
pub(super) fn tag(norm_type: NormType) -> u64 {
    let norm = match norm_type {
        NormType::Linf => 0,
        NormType::L1 => 1,
        NormType::L2 => 2,
    };
    TAG.wrapping_add(norm << 40)
}

/// The sum of f16 as words of a ledger.
pub(super) fn f16_words(sum: u128) -> [u64; F16_WORDS] {
    [0, 32, 64, 96].map(|bit| (sum >> bit) as u64 & u64::from(u32::MAX))
}

/// The sum of f16, from sums of so many words; `None` if it has more than 128 bits, or no such words add up to these.
pub(super) fn f16_of(words: &[u64], parts: u64) -> Option<u128> {
    let most = u128::from(parts) * u128::from(u32::MAX);
    words.iter().rev().try_fold(0u128, |sum, &word| {
        let word = u128::from(word);
        sum.checked_mul(1 << 32)?.checked_add(word).filter(|_| word <= most)
    })
}

pub(super) fn squared(bits: u32) -> u64 {
    u64::from(bits).wrapping_mul(u64::from(bits))
}

/// What all parts said alike: a positive, finite f32, from the sum of its bits and the sum of their squares.
fn mean([sum, squares]: [u64; 2], parts: u64) -> Option<u32> {
    let bits = u32::try_from(sum / parts).ok().filter(|_| sum % parts == 0)?;
    let all_alike = squares == squared(bits).wrapping_mul(parts);
    (all_alike && LossScale::new(f32::from_bits(bits)).is_ok()).then_some(bits)
}

/// A linear sum, so that the sum of checksums is the checksum of the sum. Odd factors: no change of one word goes unseen.
pub(super) fn checksum(words: &[u64]) -> u64 {
    let mut factor = TAG;
    words.iter().fold(0u64, |sum, word| {
        // Knuth's MMIX multiplier and increment.
        factor = factor.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sum.wrapping_add(word.wrapping_mul(factor | 1))
    })
}
