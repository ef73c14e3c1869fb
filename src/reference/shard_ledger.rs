//! The read pass over a part of the gradients: the ledger that is merged with those of the others.

use super::norm_partials::Ledger as Sums;
use super::{TensorBits, apply, norm_finish, norm_partials};
use crate::ledger::Part;
use crate::{Error, Ledger, Limit, LossScale, NormType, Unscale};

/// The ledger of a part of the gradients, for a step with this limit, in place.
///
/// # Errors
/// [`Error::ShardLimit`] if a step with this limit cannot be sharded, or a number is a word of a buffer; the errors of
/// numbers outside their domains.
pub fn ledger(
    tensors: &[TensorBits<'_>],
    scale: impl Into<Unscale>,
    limit: impl Into<Limit>,
) -> Result<Ledger, Error> {
    part(tensors, &scale.into(), limit.into(), true)
}

/// [`ledger`] of a deferred step, in which nothing can overflow.
///
/// # Errors
/// As [`ledger`].
pub fn ledger_deferred(
    tensors: &[TensorBits<'_>],
    scale: impl Into<Unscale>,
    limit: impl Into<Limit>,
) -> Result<Ledger, Error> {
    part(tensors, &scale.into(), limit.into(), false)
}

fn part(
    tensors: &[TensorBits<'_>],
    unscale: &Unscale,
    limit: Limit,
    in_place: bool,
) -> Result<Ledger, Error> {
    unscale.check()?;
    let words = || Error::ShardLimit { set: "reference".into(), why: crate::ledger::WORDS.into() };
    let divisor = unscale.divisor.value().ok_or_else(words)?;
    let scale = LossScale::new(unscale.scale.value().ok_or_else(words)?)?;
    let terms = super::merged::terms_of(&[], &limit.any(), divisor, in_place)?;
    let norm_type = terms.norm_type;
    let inverse = norm_finish::inverse(scale.get(), divisor).unwrap_or(crate::R24::ONE);
    let mut part =
        Part { terms, scale, elements: 0, nonfinite: [0; 3], overflow: false, sums: Sums::default() };
    for tensor in tensors {
        let (format, bytes) = (tensor.format, &*tensor.bytes);
        part.elements += bytes.len() as u64 / format.size();
        let found = norm_partials::census(format, bytes);
        for (sum, n) in part.nonfinite.iter_mut().zip([found.nan, found.pos_inf, found.neg_inf]) {
            *sum += n;
        }
        if tensor.role.counted() {
            part.sums.merge(&match norm_type {
                NormType::L1 => norm_partials::l1_ledger(format, bytes),
                NormType::L2 | NormType::Linf => norm_partials::ledger(format, bytes),
            });
        }
        part.overflow |= in_place && tensor.role.scaled() && apply::overflows(format, bytes, inverse);
    }
    Ok(Ledger::of_part(part))
}
