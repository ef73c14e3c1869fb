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
//! let mut tensors = [TensorBits::new(Format::F32, &mut bytes)];
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
mod merged;
pub mod plain;
mod scale_update;
mod shard_ledger;

pub use crate::exact::{arithmetic as exact, norm_finish, norm_partials};
pub use merged::step_merged;
pub use scale_update::scale_update;
pub use shard_ledger::{ledger, ledger_deferred};

use crate::limit::{AnyLimit, Rule};
use crate::{
    ClipNorm, ClipValue, Format, Limit, LossScale, Nonfinite, NormType, R24, Role, Scalar, TensorClip,
    Unscale,
};

/// One gradient tensor.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorBits<'a> {
    /// How an element is stored.
    pub format: Format,
    /// The elements, little-endian, back to back: `bytes.len() / format.size()` of them. Bytes left over at the end
    /// are not an element; nothing reads or changes them.
    pub bytes: &'a mut [u8],
    /// What a step does with it.
    pub role: Role,
}

impl<'a> TensorBits<'a> {
    /// A tensor that is counted in the norm and scaled.
    #[must_use]
    pub fn new(format: Format, bytes: &'a mut [u8]) -> Self {
        Self { format, bytes, role: Role::default() }
    }

    /// The same with another role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }
}

/// What a step found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Whether the step was given up, with every byte as it was, for one of the next reasons.
    pub skipped: bool,
    /// Some gradient was not finite, or `overflow`.
    pub found_inf: bool,
    /// Whether that was because a result would not fit its format, with all gradients finite.
    pub overflow: bool,
    /// The norm was above the threshold from which steps are skipped.
    pub above: bool,
    /// A number was none that a step can use. A word of a buffer, which has no value here, is none.
    pub bad_scalar: bool,
    /// The norm of the unscaled gradients, before clipping. Zero if some gradient was not finite.
    pub total_norm: R24,
    /// What the norm was clipped by: min(1, `max_norm` / (norm + `eps`)). Zero if the step was given up.
    pub coefficient: R24,
    /// What every element was multiplied by, or is to be where the step is deferred. Zero if the step was given up.
    pub factor: R24,
    /// The NaN and infinite elements of each tensor, in the order of the tensors.
    pub nonfinite: Vec<Nonfinite>,
    /// With a limit for each tensor by itself, what it did to each; else empty.
    pub clips: Vec<TensorClip>,
}

/// The numbers of a step; `None` if one cannot be used.
struct Numbers {
    inverse: R24,
    max_norm: f32,
    eps: f32,
    skip_above: f32,
    given: R24,
}

impl Numbers {
    fn of(unscale: &Unscale, limit: &AnyLimit) -> Option<Self> {
        unscale.check().and(limit.check()).ok()?;
        let (max_norm, given) = match &limit.rule {
            Rule::None | Rule::Value(_) => (f32::INFINITY, 0.0),
            Rule::Norm(max_norm) | Rule::EachTensor(max_norm) => (max_norm.value()?, 0.0),
            Rule::GivenNorm { norm, max_norm } => (max_norm.value()?, norm.value()?),
            Rule::Coefficient(coefficient) => (f32::INFINITY, coefficient.value()?),
        };
        let skip_above = limit.skip_above.as_ref().map_or(Some(f32::INFINITY), Scalar::value)?;
        Some(Self {
            inverse: norm_finish::inverse(unscale.scale.value()?, unscale.divisor.value()?)?,
            max_norm,
            eps: limit.eps.value()?,
            skip_above,
            given: R24::from_f32(given)?,
        })
    }
}

/// Tests, unscales and limits the tensors as one group, in place, as [`GradSet::record`](crate::GradSet::record). It does
/// not panic.
#[must_use]
pub fn step<K>(
    tensors: &mut [TensorBits<'_>],
    scale: impl Into<Unscale>,
    limit: impl Into<Limit<K>>,
) -> Outcome {
    take(tensors, &scale.into(), &limit.into().any(), true)
}

/// [`step`] without the write, as [`GradSet::record_deferred`](crate::GradSet::record_deferred): no byte changes, and no
/// result can overflow.
#[must_use]
pub fn step_deferred(
    tensors: &mut [TensorBits<'_>],
    scale: impl Into<Unscale>,
    limit: impl Into<Limit>,
) -> Outcome {
    take(tensors, &scale.into(), &limit.into().any(), false)
}

fn take(tensors: &mut [TensorBits<'_>], unscale: &Unscale, limit: &AnyLimit, in_place: bool) -> Outcome {
    let skipped = skipped(tensors);
    let nonfinite = skipped.nonfinite.iter().any(|found| found.first.is_some());
    let Some(numbers) = Numbers::of(unscale, limit) else {
        return Outcome { found_inf: nonfinite, bad_scalar: true, ..skipped };
    };
    let each = |coefficients: Option<&[R24]>| match limit.rule {
        Rule::EachTensor(_) => tensors_alone(tensors, limit.norm_type, numbers.inverse, coefficients),
        _ => Vec::new(),
    };
    if nonfinite {
        return Outcome { clips: each(None), found_inf: true, ..skipped };
    }
    let measured = norm(&counted(tensors), limit.norm_type, numbers.inverse);
    let total_norm = if matches!(limit.rule, Rule::GivenNorm { .. }) { numbers.given } else { measured };
    let given_up = Outcome { total_norm, ..skipped };
    let above =
        R24::from_f32(numbers.skip_above).is_some_and(|most| exact::compare(total_norm, most).is_gt());
    if above {
        return Outcome { clips: each(None), above, ..given_up };
    }
    let of_norm = |norm| norm_finish::coefficient(norm, numbers.max_norm, numbers.eps);
    let inverse = numbers.inverse;
    let coefficients: Vec<R24> = tensors
        .iter()
        .map(|tensor| match limit.rule {
            Rule::EachTensor(_) if tensor.role == Role::CountedAndScaled => {
                of_norm(norm(&[(tensor.format, &*tensor.bytes)], limit.norm_type, inverse))
            }
            Rule::EachTensor(_) | Rule::Value(_) | Rule::None => R24::ONE,
            Rule::Norm(_) | Rule::GivenNorm { .. } => of_norm(total_norm),
            Rule::Coefficient(_) => numbers.given,
        })
        .collect();
    let clip = match limit.rule {
        // Checked with the numbers.
        Rule::Value(value) => ClipValue::new(value).ok().filter(|clip| clip.get() != f32::INFINITY),
        _ => None,
    };
    let factors: Vec<R24> = coefficients.iter().map(|&c| norm_finish::factor(c, inverse)).collect();
    let written = || tensors.iter().zip(&factors).filter(|(tensor, _)| in_place && tensor.role.scaled());
    let overflow = clip.is_none()
        && written().any(|(t, &factor)| factor != R24::ONE && apply::overflows(t.format, t.bytes, factor));
    if overflow {
        return Outcome { clips: each(None), found_inf: true, overflow, ..given_up };
    }
    let clips = each(Some(&coefficients));
    let one = match limit.rule {
        Rule::None | Rule::Value(_) | Rule::EachTensor(_) => R24::ONE,
        Rule::Norm(_) | Rule::GivenNorm { .. } => of_norm(total_norm),
        Rule::Coefficient(_) => numbers.given,
    };
    let factor = norm_finish::factor(one, inverse);
    let smallest = coefficients.iter().copied().min_by(|&a, &b| exact::compare(a, b)).unwrap_or(R24::ONE);
    let coefficient = if matches!(limit.rule, Rule::EachTensor(_)) { smallest } else { one };
    let taken = Outcome { skipped: false, coefficient, factor, clips, ..given_up };
    if !in_place {
        return taken;
    }
    for (tensor, &factor) in tensors.iter_mut().zip(&factors).filter(|(tensor, _)| tensor.role.scaled()) {
        match clip {
            Some(clip) => apply::clip_value(tensor.format, tensor.bytes, factor, clip),
            None => apply::apply(tensor.format, tensor.bytes, factor),
        }
    }
    let Some(then) = limit.then else { return taken };
    let rest = take(tensors, &Unscale::by(1.0), &Limit::from(then).any(), true);
    Outcome { total_norm: rest.total_norm, coefficient: rest.coefficient, ..taken }
}

/// [`step`] with a limit on the norm of each tensor by itself: the outcome, and what was done to each.
#[must_use]
pub fn step_per_tensor(
    tensors: &mut [TensorBits<'_>],
    scale: LossScale,
    clip: ClipNorm,
) -> (Outcome, Vec<TensorClip>) {
    let limit = Limit::each_tensor(clip.max_norm()).eps(clip.eps()).norm_type(clip.norm_type());
    let outcome = step(tensors, scale, limit);
    let clips = outcome.clips.clone();
    (outcome, clips)
}

/// [`step`] with a limit on every element ([`apply::encode_clipped`]). The outcome has the L2 norm before, the coefficient 1
/// and the factor R24(1 / `scale`).
#[must_use]
pub fn step_clip_value(tensors: &mut [TensorBits<'_>], scale: LossScale, clip: ClipValue) -> Outcome {
    step(tensors, scale, clip)
}

/// A step that was given up, with the counts of what is not finite.
fn skipped(tensors: &[TensorBits<'_>]) -> Outcome {
    Outcome {
        skipped: true,
        found_inf: false,
        overflow: false,
        above: false,
        bad_scalar: false,
        total_norm: R24::ZERO,
        coefficient: R24::ZERO,
        factor: R24::ZERO,
        nonfinite: tensors.iter().map(|t| norm_partials::census(t.format, t.bytes)).collect(),
        clips: Vec::new(),
    }
}

/// Norms of tensors by themselves, and what they were clipped by; `None`: the step was given up.
fn tensors_alone(
    tensors: &[TensorBits<'_>],
    norm_type: NormType,
    inverse: R24,
    coefficients: Option<&[R24]>,
) -> Vec<TensorClip> {
    let clip = |(i, tensor): (usize, &TensorBits<'_>)| {
        let finite = norm_partials::census(tensor.format, tensor.bytes).first.is_none();
        TensorClip {
            norm: finite.then(|| norm(&[(tensor.format, &*tensor.bytes)], norm_type, inverse)),
            coefficient: coefficients.map_or(R24::ZERO, |all| all[i]),
        }
    };
    tensors.iter().enumerate().map(clip).collect()
}

/// What the norm counts.
fn counted<'a>(tensors: &'a [TensorBits<'_>]) -> Vec<(Format, &'a [u8])> {
    tensors.iter().filter(|t| t.role.counted()).map(|t| (t.format, &*t.bytes)).collect()
}

/// The norm of finite tensors, unscaled.
fn norm(tensors: &[(Format, &[u8])], norm_type: NormType, inverse: R24) -> R24 {
    let mut ledger = norm_partials::Ledger::default();
    match norm_type {
        NormType::L1 => {
            for &(format, bytes) in tensors {
                ledger.merge(&norm_partials::l1_ledger(format, bytes));
            }
            norm_finish::l1_norm(&ledger, inverse)
        }
        NormType::L2 => {
            for &(format, bytes) in tensors {
                ledger.merge(&norm_partials::ledger(format, bytes));
            }
            norm_finish::norm(&ledger, inverse)
        }
        NormType::Linf => {
            let each = tensors.iter().map(|&(format, bytes)| norm_partials::largest_magnitude(format, bytes));
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
        let mut tensors = [TensorBits::new(Format::F32, &mut bytes)];
        let clip = max_norm.map(|m| ClipNorm::new(m).unwrap().with_eps(eps).unwrap());
        let outcome = step(&mut tensors, LossScale::new(scale).unwrap(), clip);
        (outcome, bytes)
    }

    #[test]
    fn three_four_five() {
        let (outcome, after) = run(&[0x41c0_0000, 0x4200_0000], 8.0, Some(1.0), 1e-6);
        let r24 = |significand, exponent| R24 { significand, exponent };
        let want = Outcome {
            skipped: false,
            found_inf: false,
            overflow: false,
            above: false,
            bad_scalar: false,
            clips: Vec::new(),
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
        let mut tensors = [TensorBits::new(Format::F32, &mut a), TensorBits::new(Format::F32, &mut b)];
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
