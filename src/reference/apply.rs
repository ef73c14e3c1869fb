//! The write pass: every element times the factor, rounded into its format.

use crate::ClipValue;
use crate::exact::arithmetic::shift_right_even;
use crate::exact::element::{Layout, replace_each};
use crate::exact::norm_partials::largest;
use crate::format::Format;
use crate::r24::R24;

/// The bits of an element times `factor`; `None` if the element is not finite or the result would not be.
///
/// The exact product is rounded to f32, to nearest, ties to even, subnormals kept, and for a 16-bit format that
/// f32 value is rounded once more, the same way. The sign stays, that of a zero too. Of a 16-bit element the upper
/// half of `bits` is ignored.
#[must_use]
#[inline]
pub fn encode(format: Format, bits: u32, factor: R24) -> Option<u32> {
    let layout = Layout::of(format);
    if layout.magnitude(bits) >= layout.infinity {
        return None;
    }
    let (m, p) = layout.split(bits);
    let exponent = i64::from(p) + i64::from(factor.exponent);
    let single = Layout::of(Format::F32);
    let mut result = nearest(single, u64::from(m) * u64::from(factor.significand), exponent)?;
    if format != Format::F32 {
        let (m, p) = single.split(result);
        result = nearest(layout, u64::from(m), i64::from(p))?;
    }
    Some(bits & layout.sign | result)
}

/// The bits of the value of a format that is nearest to `m * 2^exponent`; `None` for infinity.
#[inline]
fn nearest(layout: Layout, m: u64, exponent: i64) -> Option<u32> {
    if m == 0 {
        return Some(0);
    }
    let width = 64 - m.leading_zeros();
    let lowest = i64::from(layout.lowest);
    // The exponent of the result's last bit, and how far it is above the lowest that the format has.
    let last = (exponent + i64::from(width) - 1 - i64::from(layout.fraction_bits)).max(lowest);
    let binade = u32::try_from(last - lowest).ok()?;
    if binade >= layout.infinity >> layout.fraction_bits {
        return None;
    }
    // More than 64 places shift everything out, and so do 65.
    let q = match last - exponent {
        down @ 0.. => shift_right_even(m, down.min(65) as u32),
        up => m << up.unsigned_abs(),
    };
    // The leading bit of q adds one to the exponent field, and so does rounding up to the next binade. Of a
    // subnormal there is none, and it has the field 0.
    let bits = (binade << layout.fraction_bits) + u32::try_from(q).ok()?;
    (bits < layout.infinity).then_some(bits)
}

/// Whether some element of a tensor has no finite result.
///
/// Rounding keeps order, so the largest magnitude answers for all. A tensor with a NaN or an infinity overflows.
#[must_use]
pub fn overflows(format: Format, bytes: &[u8], factor: R24) -> bool {
    encode(format, largest(format, bytes), factor).is_none()
}

/// Multiplies every element of a tensor by `factor`, in place, as [`encode`] does.
///
/// Elements without a finite result stay as they are; a step asks [`overflows`] first, for all its tensors.
pub fn apply(format: Format, bytes: &mut [u8], factor: R24) {
    replace_each(format, bytes, |bits| encode(format, bits, factor).unwrap_or(bits));
}

/// The bits of an element times `factor`, no larger in magnitude than `clip`; `None` if the element is not finite, or if the
/// result would not be and there is no limit.
#[must_use]
#[inline]
pub fn encode_clipped(format: Format, bits: u32, factor: R24, clip: ClipValue) -> Option<u32> {
    let layout = Layout::of(format);
    if layout.magnitude(bits) >= layout.infinity {
        return None;
    }
    let product = encode(format, bits, factor);
    if clip.get() == f32::INFINITY {
        return product;
    }
    let limit = limit_bits(format, clip);
    Some(match product {
        Some(product) if layout.magnitude(product) <= limit => product,
        _ => bits & layout.sign | limit,
    })
}

/// The bits of the largest value of a format that is not above a finite limit.
fn limit_bits(format: Format, clip: ClipValue) -> u32 {
    let layout = Layout::of(format);
    let (m, p) = Layout::of(Format::F32).split(clip.get().to_bits());
    // Toward zero: what the limit has beyond the format's last bit is cut off.
    let width = 32 - m.leading_zeros();
    let last = (p + width.cast_signed() - 1 - layout.fraction_bits.cast_signed()).max(layout.lowest);
    let kept = match last - p {
        cut @ 0..=31 => m >> cut,
        cut @ ..0 => m << cut.unsigned_abs(),
        _ => 0,
    };
    // As in `nearest`: the leading bit of a normal value adds one to the exponent field.
    let binade = (last - layout.lowest).unsigned_abs();
    ((binade << layout.fraction_bits) + kept).min(layout.infinity - 1)
}

/// Multiplies every element of a tensor by `factor` and limits it, in place, as [`encode_clipped`] does. Elements without a
/// result stay as they are.
pub fn clip_value(format: Format, bytes: &mut [u8], factor: R24, clip: ClipValue) {
    replace_each(format, bytes, |bits| encode_clipped(format, bits, factor, clip).unwrap_or(bits));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::testing::Lcg;

    #[test]
    fn f32_results_are_those_of_one_hardware_multiply() {
        let mut random = Lcg::new(6);
        for _ in 0..500_000 {
            let (bits, by) = (random.next_u32(), random.next_u32() & 0x7fff_ffff);
            let (x, y) = (f32::from_bits(bits), f32::from_bits(by));
            let Some(factor) = R24::from_f32(y) else {
                continue;
            };
            let want = (x.is_finite() && (x * y).is_finite()).then(|| (x * y).to_bits());
            assert_eq!(encode(Format::F32, bits, factor), want, "{x:e} * {y:e}");
        }
    }

    #[test]
    fn bf16_results_round_the_f32_result() {
        let mut random = Lcg::new(7);
        for _ in 0..500_000 {
            let (bits, by) = (random.next_u32() >> 16, random.next_u32() & 0x7fff_ffff);
            let (x, y) = (f32::from_bits(bits << 16), f32::from_bits(by));
            let Some(factor) = R24::from_f32(y) else {
                continue;
            };
            let product = (x * y).to_bits();
            let rounded = product.saturating_add(0x7fff + (product >> 16 & 1)) >> 16;
            let finite = x.is_finite() && rounded & 0x7fff < 0x7f80;
            assert_eq!(encode(Format::Bf16, bits, factor), finite.then_some(rounded), "{x:e} * {y:e}");
        }
    }

    #[test]
    fn one_is_the_identity_and_zero_keeps_signs() {
        for bits in 0..0x1_0000 {
            for format in [Format::F16, Format::Bf16] {
                let layout = Layout::of(format);
                let finite = layout.magnitude(bits) < layout.infinity;
                assert_eq!(encode(format, bits, R24::ONE), finite.then_some(bits));
                assert_eq!(encode(format, bits, R24::ZERO), finite.then_some(bits & 0x8000));
            }
        }
    }

    #[test]
    fn halves_round_twice() {
        let by = |value: f32| R24::from_f32(value).unwrap();
        for (bits, factor, want) in [
            (0x0001, 0.5, Some(0x0000)),
            (0x8001, 0.5, Some(0x8000)),
            (0x0003, 0.5, Some(0x0002)),
            (0x0001, 0.75, Some(0x0001)),
            (0x0400, 0.5, Some(0x0200)),
            (0x07ff, 0.5, Some(0x0400)),
            (0x3c00, 65519.0, Some(0x7bff)),
            (0x3c00, 65520.0, None),
            (0xbc00, 65520.0, None),
            // The product is 1 + 2^-11 + 2^-31. The last term is lost in f32, which leaves a tie.
            (0x3c01, 16_769_032.0 / 16_777_216.0, Some(0x3c00)),
        ] {
            assert_eq!(encode(Format::F16, bits, by(factor)), want, "{bits:04x} * {factor}");
        }
    }

    #[test]
    fn factors_outside_f32_are_exact_too() {
        let power = |exponent: i32| R24 { significand: 1 << 23, exponent: exponent - 23 };
        assert_eq!(encode(Format::F32, 1, power(149)), Some(0x3f80_0000));
        assert_eq!(encode(Format::F32, 1, power(276)), Some(0x7f00_0000));
        assert_eq!(encode(Format::F32, 1, power(277)), None);
        assert_eq!(encode(Format::F32, 0x7f00_0000, power(-276)), Some(1));
        assert_eq!(encode(Format::F32, 0x7f00_0000, power(-277)), Some(0));
        assert_eq!(encode(Format::F32, 0x7f00_0001, power(-277)), Some(1));
        let extremes = [i32::MIN, i32::MAX].map(|exponent| R24 { significand: u32::MAX, exponent });
        assert_eq!(extremes.map(|f| encode(Format::F32, 0xbf80_0000, f)), [Some(1 << 31), None]);
        assert_eq!(encode(Format::Bf16, 0x8000, extremes[1]), Some(0x8000));
    }

    #[test]
    fn limits_are_values_of_the_format() {
        let mut bits = 0u32;
        while bits < 0x7f80_0000 {
            let clip = ClipValue::new(f32::from_bits(bits)).unwrap();
            for format in Format::ALL {
                let within = clip.within(format);
                let limit = limit_bits(format, clip);
                let value = match format {
                    Format::F32 => f32::from_bits(limit),
                    Format::F16 => half::f16::from_bits(limit as u16).to_f32(),
                    Format::Bf16 => f32::from_bits(limit << 16),
                };
                assert_eq!(value.to_bits(), within.to_bits(), "{format} {bits:08x}");
            }
            bits += 0x1357;
        }
    }

    #[test]
    fn a_limit_keeps_signs_and_takes_what_overflows() {
        let clip = |value| ClipValue::new(value).unwrap();
        let two = R24::from_f32(2.0).unwrap();
        let half = |bits, limit| encode_clipped(Format::F16, bits, two, clip(limit));
        assert_eq!(half(0x3c00, 1.5), Some(0x3e00));
        assert_eq!(half(0xbc00, 1.5), Some(0xbe00));
        assert_eq!(half(0xbc00, 2.0), Some(0xc000));
        assert_eq!(half(0x8000, 0.0), Some(0x8000));
        assert_eq!(half(0xbc00, 0.0), Some(0x8000));
        assert_eq!(half(0x7bff, 1e9), Some(0x7bff));
        assert_eq!(half(0xfbff, 65504.0), Some(0xfbff));
        assert_eq!(half(0x7bff, f32::INFINITY), None);
        assert_eq!(half(0x7c00, 1.0), None);
        assert_eq!(encode_clipped(Format::F32, 0xff7f_ffff, two, clip(f32::MAX)), Some(0xff7f_ffff));
        assert_eq!(encode_clipped(Format::F32, 0x3f80_0000, R24::ONE, clip(1.0)), Some(0x3f80_0000));
    }

    #[test]
    fn the_largest_element_answers_for_all() {
        let bytes: Vec<u8> = [0x3c00u16, 0xfbff, 0].into_iter().flat_map(u16::to_le_bytes).collect();
        let just_over = R24 { significand: (1 << 23) + (1 << 12) + (1 << 11), exponent: -23 };
        assert!(!overflows(Format::F16, &bytes, R24::ONE));
        assert!(overflows(Format::F16, &bytes, just_over));
        assert!(!overflows(Format::Bf16, &bytes, just_over));
        assert!(!overflows(Format::F16, &[], just_over));
        assert!(overflows(Format::F16, &[0x00, 0x7c], R24::ZERO));
        let mut partly = bytes.clone();
        apply(Format::F16, &mut partly, just_over);
        assert_eq!(partly[2..4], bytes[2..4]);
    }
}
