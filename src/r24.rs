//! The number that a step computes with: a 24-bit significand and an exponent without bounds.

/// `significand * 2^exponent`, not negative. The significand is 0 (then the exponent is 0 too) or has exactly 24
/// bits, so two equal values have equal fields.
///
/// Norm, coefficient and factor of a step have this type because they may lie outside f32: the norm of two
/// gradients of `f32::MAX` does, and so does the factor that unscales by 2^127.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct R24 {
    /// 0, or from 2^23 up to and not including 2^24.
    pub significand: u32,
    /// The power of two that the significand is multiplied by.
    pub exponent: i32,
}

impl R24 {
    /// Zero.
    pub const ZERO: Self = Self { significand: 0, exponent: 0 };
    /// One.
    pub const ONE: Self = Self { significand: 1 << 23, exponent: -23 };

    /// The exact value of a finite f32 that is not negative (subnormals included); `None` for any other.
    #[must_use]
    pub fn from_f32(value: f32) -> Option<Self> {
        let bits = value.to_bits();
        if bits >= 0x7f80_0000 {
            return (bits == 0x8000_0000).then_some(Self::ZERO);
        }
        let (field, fraction) = ((bits >> 23) as i32, bits & 0x007f_ffff);
        Some(match (field, fraction) {
            (0, 0) => Self::ZERO,
            (0, _) => {
                let shift = fraction.leading_zeros() - 8;
                Self { significand: fraction << shift, exponent: -149 - shift as i32 }
            }
            _ => Self { significand: fraction | 1 << 23, exponent: field - 150 },
        })
    }

    /// The value as f64: exact for every value that a step can produce.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        // Two multiplications, so that exponents beyond one f64 power of two lose nothing on the way.
        let half = self.exponent / 2;
        f64::from(self.significand) * 2f64.powi(half) * 2f64.powi(self.exponent - half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_f32_is_exact_and_normalised() {
        for bits in [0, 1, 2, 3, 0x7f_ffff, 0x80_0000, 0x80_0001, 0x3f80_0000, 0x7f7f_ffff, 0x0040_0000] {
            let value = f32::from_bits(bits);
            let r = R24::from_f32(value).unwrap();
            assert_eq!(r.to_f64(), f64::from(value), "{bits:08x}");
            assert!(r.significand == 0 || r.significand >> 23 == 1, "{bits:08x}");
        }
        assert_eq!(R24::from_f32(1.0), Some(R24::ONE));
        assert_eq!(R24::from_f32(-0.0), Some(R24::ZERO));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, -1e-45] {
            assert_eq!(R24::from_f32(bad), None);
        }
    }
}
