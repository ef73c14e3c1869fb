//! The end of a sharded step, from the ledger of all parts.

use super::{Outcome, TensorBits, apply, exact, norm_finish, skipped};
use crate::ledger::Terms;
use crate::limit::AnyLimit;
use crate::{Error, Ledger, Limit, R24};

/// The end of a sharded [`step`](super::step): `tensors` are one part, `merged` the ledger of all. What the outcome says of NaN and
/// infinity is about the part. The loss scale and the divisor are the ledger's.
///
/// # Errors
/// [`Error::Ledger`] if the ledger was measured for another norm or limit than `limit`; [`Error::ShardLimit`] if a step with
/// this limit cannot be sharded. No byte changes then.
pub fn step_merged(
    tensors: &mut [TensorBits<'_>],
    merged: &Ledger,
    limit: impl Into<Limit>,
) -> Result<Outcome, Error> {
    let limit = limit.into().any();
    let terms = terms_of(tensors, &limit, merged.divisor(), true)?;
    if terms.norm_type != merged.norm_type() {
        return Err(Error::Ledger { what: "it was measured for another norm than the limit's".into() });
    }
    merged.check_terms(&terms)?;
    let skipped = skipped(tensors);
    let inverse = norm_finish::inverse(merged.scale(), merged.divisor()).unwrap_or(R24::ONE);
    let Some(total_norm) = merged.total_norm() else { return Ok(Outcome { found_inf: true, ..skipped }) };
    let given_up = Outcome { total_norm, ..skipped };
    if R24::from_f32(terms.skip_above).is_some_and(|most| exact::compare(total_norm, most).is_gt()) {
        return Ok(Outcome { above: true, ..given_up });
    }
    let coefficient = norm_finish::coefficient(total_norm, terms.max_norm, terms.eps);
    if coefficient == R24::ONE && merged.overflowing() > 0 {
        return Ok(Outcome { found_inf: true, overflow: true, ..given_up });
    }
    let factor = norm_finish::factor(coefficient, inverse);
    for tensor in tensors.iter_mut().filter(|tensor| tensor.role.scaled()) {
        apply::apply(tensor.format, tensor.bytes, factor);
    }
    Ok(Outcome { skipped: false, coefficient, factor, ..given_up })
}

/// What a sharded step was told.
pub(super) fn terms_of(
    tensors: &[TensorBits<'_>],
    limit: &AnyLimit,
    divisor: f32,
    in_place: bool,
) -> Result<Terms, Error> {
    limit.check()?;
    let refuse = |why: String| Error::ShardLimit { set: "reference".into(), why };
    let terms = Terms::new(limit, divisor, in_place).map_err(refuse)?;
    terms.check_formats("reference", tensors.iter().map(|t| t.format))?;
    Ok(terms)
}
