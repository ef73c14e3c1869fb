//! The CPU twin of the GPU kernels: what a step must return, on every bit.
//!
//! The result of a step is a function of the gradient bits, the scale, `max_norm` and `eps` alone. [`step`] computes
//! it in integers, with code of its own; no adapter, driver, order or cut can change it. A device that differs from
//! it in one bit is wrong, so compare with `assert_eq!` and no tolerance.
//!
//! With R24(v) for v rounded to a 24-bit significand, to nearest, ties to even, exponent without bounds, a step is:
//!
//! 1. **Finite test** ([`census`](norm_partials::census)). All exponent bits set is nonfinite. One such element in
//!    any tensor ends the step: no byte changes, no norm is reported.
//! 2. **Squares** ([`Ledger`](norm_partials::Ledger)). R24(x * x) of every f32 and bf16 element x, as 22-bit digits in 27
//!    cells. The sum of a cell is an integer, so the order of additions cannot matter. Squares of f16 are multiples of 2^-48
//!    below 2^32, and are added up whole, as one integer S.
//! 3. **Norm** ([`norm`](norm_finish::norm)). V is the sum of the highest cell that is not zero and the three below
//!    it, inv = R24(1 / scale), and the norm is R24(R24(sqrt(V)) * inv). If the leading bit of S lies in a higher cell,
//!    (floor(log2 S) + 254) / 22 rounded down, that is the highest. S is rounded down once, to a multiple of the unit of the
//!    lowest of the four cells, and added to V.
//! 4. **Coefficient** ([`coefficient`](norm_finish::coefficient)). 1 if norm <= `max_norm`, else
//!    R24(`max_norm` / R24(norm + `eps`)).
//! 5. **Factor** ([`factor`](norm_finish::factor)). R24(coefficient * inv). If it is 1, nothing is written.
//! 6. **Store** ([`encode`](apply::encode)). The exact product of element and factor, rounded to f32 and, for the
//!    16-bit formats, from there to the format. If a result would overflow its format, no byte changes.
//!
//! # Other norms and limits
//!
//! 3a. **L1** ([`l1_norm`](norm_finish::l1_norm)). |x| of every element, which has 24 bits, in the same 22-bit digits;
//!     nothing is rounded. The cell of x is its biased exponent over 22, rounded down, and the unit of cell c is
//!     2^(22c - 127); cells run from -1 to 11. Of f16 the sum S is whole, in units of 2^-24, and its cell
//!     (floor(log2 S) + 127) / 22, rounded down. V as above, and the norm is R24(R24(V) * inv).
//! 3b. **Linf** ([`linf_norm`](norm_finish::linf_norm)). R24(max|x| * inv).
//! 4a. **Per tensor** ([`step_per_tensor`]). 3 to 6 for each tensor by itself. The tests of 1 and 6 hold for all: one
//!     element ends the step.
//! 4b. **Value** ([`step_clip_value`]). No coefficient; the factor is inv. Of the product as stored in 6, before the
//!     overflow test, the magnitude is replaced by the limit if it is larger, where the limit is `clip_value` rounded
//!     down into the format ([`ClipValue::within`]). So an element whose product overflows ends at the limit; only an
//!     infinite limit leaves 6 its overflow test. If the factor is 1 and nothing is above the limit, nothing is written.
//! 2a. **Sharded** ([`ledger`], [`step_merged`]). Each part does 1 and 2 and keeps, beside its sums, whether one of its
//!     elements times inv would overflow. All of these are added up, and 3 to 6 go on from the sums, on every part the
//!     same. A coefficient below 1 leaves no result above `max_norm`, which is kept so far below the overflow of
//!     every format that 6 needs no other test.
//!
//! The norm is within 1 unit in the last place of the true one for a scale that is a power of two, and within 3 for
//! any other. [`plain::norm_f64`] is a second norm, in f64, that shares no code with this one.
//!
//! ```
//! use gradclip::reference::{TensorBits, step};
//! use gradclip::{ClipNorm, Format, LossScale};
//!
//! // Gradients 3 and 4, computed with a loss scale of 8: the norm is 5, and the limit 1.
//! let mut bytes: Vec<u8> = [24f32, 32.0].into_iter().flat_map(f32::to_le_bytes).collect();
//! let mut tensors = [TensorBits { format: Format::F32, bytes: &mut bytes }];
//! let clip = ClipNorm::new(1.0)?.with_eps(0.0)?;
//! let outcome = step(&mut tensors, LossScale::new(8.0)?, Some(clip));
//!
//! assert_eq!(outcome.total_norm.to_f64(), 5.0);
//! assert!(!outcome.found_inf);
//! let clipped: Vec<u8> = [0.6f32, 0.8].into_iter().flat_map(f32::to_le_bytes).collect();
//! assert_eq!(bytes, clipped);
//! # Ok::<(), gradclip::Error>(())
//! ```

pub mod apply;
pub mod plain;
mod scale_update;
mod shard_ledger;

pub use crate::exact::{arithmetic as exact, norm_finish, norm_partials};
pub use scale_update::scale_update;
pub use shard_ledger::ledger;

use crate::{ClipNorm, ClipValue, Error, Format, Ledger, LossScale, Nonfinite, NormType, R24, TensorClip};

/// One gradient tensor.
#[derive(Debug, PartialEq, Eq)]
pub struct TensorBits<'a> {
    /// How an element is stored.
    pub format: Format,
    /// The elements, little-endian, back to back: `bytes.len() / format.size()` of them. Bytes left over at the end
    /// are not an element; nothing reads or changes them.
    pub bytes: &'a mut [u8],
}

/// What a step found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the step was given up, with every byte as it was.
    pub found_inf: bool,
    /// Whether that was because a result would not fit its format, with all gradients finite.
    pub overflow: bool,
    /// The norm of the unscaled gradients, before clipping. Zero if some gradient was not finite.
    pub total_norm: R24,
    /// What the norm was clipped by: min(1, `max_norm` / (norm + `eps`)). Zero if the step was given up.
    pub coefficient: R24,
    /// What every element was multiplied by. Zero if the step was given up.
    pub factor: R24,
    /// The NaN and infinite elements of each tensor, in the order of the tensors.
    pub nonfinite: Vec<Nonfinite>,
}

/// Tests, unscales and clips the tensors as one group, in place. Without `clip` there is no limit. It does not panic.
#[must_use]
pub fn step(tensors: &mut [TensorBits<'_>], scale: LossScale, clip: Option<ClipNorm>) -> Outcome {
    let inverse = norm_finish::inverse(scale);
    let skipped = skipped(tensors);
    if skipped.nonfinite.iter().any(|found| found.first.is_some()) {
        return skipped;
    }
    let norm_type = clip.map_or(NormType::L2, ClipNorm::norm_type);
    let total_norm = norm(tensors, norm_type, inverse);
    let coefficient = norm_finish::coefficient(total_norm, clip);
    let factor = norm_finish::factor(coefficient, inverse);
    if factor != R24::ONE {
        if tensors.iter().any(|t| apply::overflows(t.format, t.bytes, factor)) {
            return Outcome { overflow: true, total_norm, ..skipped };
        }
        for tensor in tensors.iter_mut() {
            apply::apply(tensor.format, tensor.bytes, factor);
        }
    }
    Outcome { found_inf: false, total_norm, coefficient, factor, ..skipped }
}

/// [`step`] with the limit on the norm of each tensor by itself: every tensor has a coefficient of its own. The norm of
/// the outcome is that of all tensors, its coefficient the smallest of any, its factor R24(1 / `scale`).
///
/// What is not finite, or would overflow, ends the step for all tensors.
#[must_use]
pub fn step_per_tensor(
    tensors: &mut [TensorBits<'_>],
    scale: LossScale,
    clip: ClipNorm,
) -> (Outcome, Vec<TensorClip>) {
    let inverse = norm_finish::inverse(scale);
    let skipped = skipped(tensors);
    let norms: Vec<Option<R24>> = (0..tensors.len())
        .map(|i| {
            let finite = skipped.nonfinite[i].first.is_none();
            finite.then(|| norm(&tensors[i..=i], clip.norm_type(), inverse))
        })
        .collect();
    let given_up = |outcome: Outcome| {
        (outcome, norms.iter().map(|&norm| TensorClip { norm, coefficient: R24::ZERO }).collect())
    };
    if norms.contains(&None) {
        return given_up(skipped);
    }
    let total_norm = norm(tensors, clip.norm_type(), inverse);
    let coefficients: Vec<R24> =
        norms.iter().map(|norm| norm_finish::coefficient(norm.unwrap_or(R24::ZERO), Some(clip))).collect();
    let factors: Vec<R24> = coefficients.iter().map(|&c| norm_finish::factor(c, inverse)).collect();
    let each = tensors.iter().zip(&factors);
    if each.into_iter().any(|(t, &factor)| apply::overflows(t.format, t.bytes, factor)) {
        return given_up(Outcome { overflow: true, total_norm, ..skipped });
    }
    for (tensor, &factor) in tensors.iter_mut().zip(&factors) {
        apply::apply(tensor.format, tensor.bytes, factor);
    }
    let coefficient = coefficients.iter().copied().min_by(|&a, &b| exact::compare(a, b)).unwrap_or(R24::ONE);
    let outcome = Outcome { found_inf: false, total_norm, coefficient, factor: inverse, ..skipped };
    let clips = norms.into_iter().zip(coefficients);
    (outcome, clips.map(|(norm, coefficient)| TensorClip { norm, coefficient }).collect())
}

/// Tests and unscales the tensors, and limits every element to `clip`, in place
/// ([`apply::encode_clipped`]). The outcome has the L2 norm before, the coefficient 1 and the factor R24(1 / `scale`).
///
/// A finite element that is too large for its format when divided by the scale is limited like any other; only without a
/// limit (infinity) does it end the step, as in [`step`].
#[must_use]
pub fn step_clip_value(tensors: &mut [TensorBits<'_>], scale: LossScale, clip: ClipValue) -> Outcome {
    let inverse = norm_finish::inverse(scale);
    let skipped = skipped(tensors);
    if skipped.nonfinite.iter().any(|found| found.first.is_some()) {
        return skipped;
    }
    let total_norm = norm(tensors, NormType::L2, inverse);
    let unlimited = clip.get() == f32::INFINITY;
    if unlimited && tensors.iter().any(|t| apply::overflows(t.format, t.bytes, inverse)) {
        return Outcome { overflow: true, total_norm, ..skipped };
    }
    for tensor in tensors.iter_mut() {
        apply::clip_value(tensor.format, tensor.bytes, inverse, clip);
    }
    Outcome { found_inf: false, total_norm, coefficient: R24::ONE, factor: inverse, ..skipped }
}

/// The end of a sharded [`step`]: `tensors` are one part, `merged` the ledger of all. What the outcome says of NaN and
/// infinity is about the part.
///
/// # Errors
/// [`Error::Ledger`] if the ledger was measured for another norm or limit than `clip`; [`Error::ShardLimit`] if `clip` is so large that
/// something it lets through may overflow. No byte changes then.
pub fn step_merged(
    tensors: &mut [TensorBits<'_>],
    merged: &Ledger,
    clip: Option<ClipNorm>,
) -> Result<Outcome, Error> {
    crate::ledger::check_clip("reference", tensors.iter().map(|t| t.format), clip)?;
    let scale = LossScale::new(merged.scale())?;
    if clip.map_or(NormType::L2, ClipNorm::norm_type) != merged.norm_type() {
        return Err(Error::Ledger { what: "it was measured for another norm than the limit's".into() });
    }
    merged.check_clip(clip)?;
    let inverse = norm_finish::inverse(scale);
    let skipped = skipped(tensors);
    let Some(total_norm) = merged.total_norm() else { return Ok(skipped) };
    let coefficient = norm_finish::coefficient(total_norm, clip);
    if coefficient == R24::ONE && merged.overflowing() > 0 {
        return Ok(Outcome { overflow: true, total_norm, ..skipped });
    }
    let factor = norm_finish::factor(coefficient, inverse);
    for tensor in tensors.iter_mut() {
        apply::apply(tensor.format, tensor.bytes, factor);
    }
    Ok(Outcome { found_inf: false, total_norm, coefficient, factor, ..skipped })
}

/// A step that was given up, with the counts of what is not finite.
fn skipped(tensors: &[TensorBits<'_>]) -> Outcome {
    Outcome {
        found_inf: true,
        overflow: false,
        total_norm: R24::ZERO,
        coefficient: R24::ZERO,
        factor: R24::ZERO,
        nonfinite: tensors.iter().map(|t| norm_partials::census(t.format, t.bytes)).collect(),
    }
}

/// The norm of finite tensors, unscaled.
fn norm(tensors: &[TensorBits<'_>], norm_type: NormType, inverse: R24) -> R24 {
    let mut ledger = norm_partials::Ledger::default();
    match norm_type {
        NormType::L1 => {
            for tensor in tensors {
                ledger.merge(&norm_partials::l1_ledger(tensor.format, tensor.bytes));
            }
            norm_finish::l1_norm(&ledger, inverse)
        }
        NormType::L2 => {
            for tensor in tensors {
                ledger.merge(&norm_partials::ledger(tensor.format, tensor.bytes));
            }
            norm_finish::norm(&ledger, inverse)
        }
        NormType::Linf => {
            let each = tensors.iter().map(|t| norm_partials::largest_magnitude(t.format, t.bytes));
            let largest = each.max_by(|&a, &b| exact::compare(a, b));
            norm_finish::linf_norm(largest.unwrap_or(R24::ZERO), inverse)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn run(words: &[u32], scale: f32, max_norm: Option<f32>, eps: f32) -> (Outcome, Vec<u8>) {
        let mut bytes = bytes(words);
        let mut tensors = [TensorBits { format: Format::F32, bytes: &mut bytes }];
        let clip = max_norm.map(|m| ClipNorm::new(m).unwrap().with_eps(eps).unwrap());
        let outcome = step(&mut tensors, LossScale::new(scale).unwrap(), clip);
        (outcome, bytes)
    }

    #[test]
    fn three_four_five() {
        let (outcome, after) = run(&[0x41c0_0000, 0x4200_0000], 8.0, Some(1.0), 1e-6);
        let r24 = |significand, exponent| R24 { significand, exponent };
        let want = Outcome {
            found_inf: false,
            overflow: false,
            total_norm: r24(10_485_760, -21),
            coefficient: r24(13_421_770, -26),
            factor: r24(13_421_770, -29),
            nonfinite: vec![Nonfinite::default()],
        };
        assert_eq!(outcome, want);
        assert_eq!(after, bytes(&[0x3f19_9998, 0x3f4c_ccca]));
    }

    #[test]
    fn a_norm_above_f32_is_reported_and_clipped() {
        let (outcome, after) = run(&[0x7f7f_ffff, 0xff7f_ffff], 1.0, Some(1.0), 1e-6);
        let norm = f64::from(f32::MAX) * 2f64.sqrt();
        assert!((outcome.total_norm.to_f64() / norm - 1.0).abs() < 2f64.powi(-23));
        assert_eq!(after, bytes(&[0x3f35_04f3, 0xbf35_04f3]));
    }

    #[test]
    fn at_the_limit_nothing_changes_and_zero_is_a_limit() {
        let gradients = [0x4040_0000, 0xc080_0000, 0x8000_0000];
        let (outcome, after) = run(&gradients, 1.0, Some(5.0), 1e-6);
        assert_eq!((outcome.factor, after), (R24::ONE, bytes(&gradients)));
        let (outcome, after) = run(&gradients, 1.0, Some(0.0), 1e-6);
        assert_eq!((outcome.factor, after), (R24::ZERO, bytes(&[0, 1 << 31, 1 << 31])));
        assert!(!outcome.found_inf);
        let (outcome, _) = run(&gradients, 1.0, Some(f32::INFINITY), 1e-6);
        assert_eq!(outcome.coefficient, R24::ONE);
    }

    #[test]
    fn nonfinite_and_overflow_leave_every_tensor() {
        let (mut a, mut b) = (bytes(&[0x3f80_0000]), bytes(&[0x7f80_0000]));
        let mut tensors = [
            TensorBits { format: Format::F32, bytes: &mut a },
            TensorBits { format: Format::F32, bytes: &mut b },
        ];
        let scale = LossScale::new(0.5).unwrap();
        let outcome = step(&mut tensors, scale, None);
        assert!(outcome.found_inf && !outcome.overflow);
        assert_eq!(outcome.total_norm, R24::ZERO);
        assert_eq!(outcome.nonfinite[1], Nonfinite { pos_inf: 1, first: Some(0), ..Nonfinite::default() });

        tensors[1].bytes.copy_from_slice(&f32::MAX.to_le_bytes());
        let outcome = step(&mut tensors, scale, None);
        assert!(outcome.found_inf && outcome.overflow);
        assert_eq!(outcome.total_norm, R24 { significand: 0x00ff_ffff, exponent: 105 });
        assert_eq!((outcome.coefficient, outcome.factor), (R24::ZERO, R24::ZERO));
        assert_eq!((a, b), (bytes(&[0x3f80_0000]), bytes(&[0x7f7f_ffff])));
    }
}
