//! A norm in f64, by other means than the exact one: what the reference itself is held against.

use super::TensorBits;
use crate::format::Format;

/// The norm of the unscaled elements: each divided by `scale`, squared, added, and the root taken, all in f64.
///
/// No square leaves the range of f64, for any scale that is positive and finite: the quotients lie between 2^-277
/// and 2^277. The relative error is under `2^-53` per element plus a few, far below the 2^-24 of the exact norm for
/// any tensor that fits a test. NaN and infinite elements make the result NaN or infinite.
#[must_use]
pub fn norm_f64(tensors: &[TensorBits<'_>], scale: f32) -> f64 {
    let sums = tensors.iter().map(|t| sum_of_squares(t.format, t.bytes, f64::from(scale)));
    sums.sum::<f64>().sqrt()
}

/// The sum of the squares of one tensor's unscaled elements.
fn sum_of_squares(format: Format, bytes: &[u8], scale: f64) -> f64 {
    let square = |value: f64| (value / scale) * (value / scale);
    let pair = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    match format {
        Format::F32 => bytes
            .chunks_exact(4)
            .map(|b| square(f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))))
            .sum(),
        Format::F16 => bytes.chunks_exact(2).map(|b| square(widen_f16(pair(b)))).sum(),
        Format::Bf16 => {
            bytes.chunks_exact(2).map(|b| square(f64::from(f32::from_bits(u32::from(pair(b)) << 16)))).sum()
        }
    }
}

/// The magnitude of an f16 element.
fn widen_f16(bits: u16) -> f64 {
    let fraction = f64::from(bits & 0x3ff) / 1024.0;
    match i32::from(bits >> 10 & 0x1f) {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        field => (1.0 + fraction) * 2f64.powi(field - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossScale;
    use crate::exact::testing::Lcg;
    use crate::reference::step;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn plain(format: Format, bytes: &mut [u8], scale: f32) -> f64 {
        norm_f64(&[TensorBits::new(format, bytes)], scale)
    }

    #[test]
    fn widens_every_format() {
        assert_eq!(plain(Format::F32, &mut f32s(&[24.0, -32.0]), 8.0), 5.0);
        let mut halves = [0x00, 0x42, 0x00, 0xc4];
        assert_eq!(plain(Format::F16, &mut halves, 1.0), 5.0);
        let mut halves = [0x40, 0x40, 0x80, 0xc0];
        assert_eq!(plain(Format::Bf16, &mut halves, 1.0), 5.0);
        assert_eq!(widen_f16(0x8001), 2f64.powi(-24));
        assert_eq!(widen_f16(0x7bff), 65504.0);
        assert_eq!(widen_f16(0x7c00), f64::INFINITY);
        assert!(widen_f16(0x7e00).is_nan());
    }

    #[test]
    fn neither_end_of_f32_leaves_f64() {
        let (least, most) = (f32::from_bits(1), f32::MAX);
        assert_eq!(plain(Format::F32, &mut f32s(&[least]), 2f32.powi(127)), 2f64.powi(-276));
        let wide = plain(Format::F32, &mut f32s(&[most]), least);
        assert_eq!(wide, f64::from(most) * 2f64.powi(149));
    }

    /// The exact norm differs from the f64 norm by 1 ulp for a power of two as scale, by 3 for any other.
    #[test]
    fn the_exact_norm_is_the_plain_one_rounded() {
        let mut random = Lcg::new(8);
        for round in 0..3000 {
            let format = Format::ALL[round % 3];
            let width = 8 * u32::try_from(format.size()).unwrap();
            // The top exponent bit stays clear in some rounds, and all of them in others.
            let mask = [u32::MAX >> 1, 0xbfff_ffff, 0x007f_007f][random.below(3) as usize];
            let words = (0..random.below(200)).map(|_| random.next_u32() & mask & !(1 << (width - 2)));
            let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            let power = random.below(2) == 0;
            let scale = f32::from_bits(((random.below(254) + 1) << 23) | if power { 0 } else { 0x2b_1c3d });
            let mut tensors = [TensorBits::new(format, &mut bytes)];
            let want = norm_f64(&tensors, scale);
            let outcome = step(&mut tensors, LossScale::new(scale).unwrap(), None);
            if outcome.nonfinite[0].first.is_some() {
                assert!(!want.is_finite());
                continue;
            }
            let ulp = 2f64.powi(outcome.total_norm.exponent);
            let allowed = if power { 1.0 } else { 3.0 };
            let off = (outcome.total_norm.to_f64() - want).abs();
            assert!(off <= allowed * ulp, "{format} {scale:e}: {want:e} is off by {off:e}");
        }
    }
}
