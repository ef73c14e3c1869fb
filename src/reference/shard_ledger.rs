//! The read pass over a part of the gradients: the ledger that is merged with those of the others.

use super::norm_partials::Ledger as Sums;
use super::{TensorBits, apply, norm_finish, norm_partials};
use crate::clip::Clip;
use crate::ledger::{LINF, Part, refuse};
use crate::{ClipNorm, Error, Ledger, LossScale, NormType};

/// The ledger of a part of the gradients, for a step with this limit.
///
/// # Errors
/// [`Error::Ledger`] for a Linf norm, which is no sum.
pub fn ledger(tensors: &[TensorBits<'_>], scale: LossScale, clip: Option<ClipNorm>) -> Result<Ledger, Error> {
    let norm_type = Clip::Norm(clip).norm_type();
    if norm_type == NormType::Linf {
        return refuse(LINF.into());
    }
    let inverse = norm_finish::inverse(scale);
    let mut part =
        Part { clip, scale, elements: 0, nonfinite: [0; 3], overflow: false, sums: Sums::default() };
    for tensor in tensors {
        let (format, bytes) = (tensor.format, &*tensor.bytes);
        part.elements += bytes.len() as u64 / format.size();
        let found = norm_partials::census(format, bytes);
        for (sum, n) in part.nonfinite.iter_mut().zip([found.nan, found.pos_inf, found.neg_inf]) {
            *sum += n;
        }
        part.sums.merge(&match norm_type {
            NormType::L1 => norm_partials::l1_ledger(format, bytes),
            NormType::L2 | NormType::Linf => norm_partials::ledger(format, bytes),
        });
        part.overflow |= apply::overflows(format, bytes, inverse);
    }
    Ok(Ledger::of_part(part))
}
