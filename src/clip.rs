//! What a step is told: the limit of the norm and the loss scale.

use std::fmt;

use crate::{Error, Format};

/// Which norm of the gradients, PyTorch's `norm_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum NormType {
    /// The sum of the magnitudes.
    L1,
    /// The square root of the sum of the squares.
    #[default]
    L2,
    /// The largest magnitude.
    Linf,
}

impl fmt::Display for NormType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::Linf => "Linf",
        })
    }
}

/// A checked limit of the global norm, L2 unless told otherwise, which turns into a [`Limit`](crate::Limit): gradients whose norm is above `max_norm` are multiplied by
/// `max_norm / (norm + eps)`.
///
/// The formula is that of `torch.nn.utils.clip_grad_norm_`, except that at or below the limit nothing changes at all
/// (PyTorch multiplies by `max_norm / (max_norm + eps)` at the limit). `norm` is that of the *unscaled* gradients.
///
/// After the step the norm of f32 gradients is at most `max_norm * (1 + 2^-22)` for a loss scale that is a power of two,
/// and at most `max_norm * (1 + 1.5 * 2^-22)` for any other, whose inverse is rounded too. f16 and bf16 gradients add the
/// rounding of each element into its format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipNorm {
    max_norm: f32,
    eps: f32,
    norm_type: NormType,
}

impl ClipNorm {
    /// PyTorch's, Apex's and Megatron's `eps`.
    pub const DEFAULT_EPS: f32 = 1e-6;

    /// A limit with the default `eps` of 1e-6. 0 is a limit (all gradients become 0), infinity is none.
    ///
    /// # Errors
    /// [`Error::MaxNorm`] if `max_norm` is negative or NaN.
    pub fn new(max_norm: f32) -> Result<Self, Error> {
        if max_norm >= 0.0 {
            // -0 is the limit 0.
            Ok(Self { max_norm: max_norm + 0.0, eps: Self::DEFAULT_EPS, norm_type: NormType::L2 })
        } else {
            Err(Error::MaxNorm(max_norm))
        }
    }

    /// Another `eps`; 0 gives the ideal rule `max_norm / norm`.
    ///
    /// # Errors
    /// [`Error::Eps`] if `eps` is negative, NaN or infinite.
    pub fn with_eps(self, eps: f32) -> Result<Self, Error> {
        if eps >= 0.0 && eps.is_finite() { Ok(Self { eps: eps + 0.0, ..self }) } else { Err(Error::Eps(eps)) }
    }

    /// Another norm than L2. With an infinite `max_norm` it is only measured.
    #[must_use]
    pub fn with_norm_type(self, norm_type: NormType) -> Self {
        Self { norm_type, ..self }
    }

    /// Which norm is limited.
    #[must_use]
    pub fn norm_type(self) -> NormType {
        self.norm_type
    }

    /// The largest norm that passes unchanged.
    #[must_use]
    pub fn max_norm(self) -> f32 {
        self.max_norm
    }

    /// What is added to the norm in the denominator.
    #[must_use]
    pub fn eps(self) -> f32 {
        self.eps
    }
}

/// A checked limit of each gradient element, which turns into a [`Limit`](crate::Limit): what is larger in magnitude becomes `clip_value`, with its sign.
///
/// That is `torch.nn.utils.clip_grad_value_`. It changes the direction of the update, which no limit of a norm does. In a
/// format that does not have `clip_value` it is the next smaller value that the format has, so no element ends up above it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipValue(f32);

impl ClipValue {
    /// A limit. 0 is one (all gradients become 0), infinity is none.
    ///
    /// # Errors
    /// [`Error::ClipValue`] if `clip_value` is negative or NaN.
    pub fn new(clip_value: f32) -> Result<Self, Error> {
        // -0 is the limit 0.
        if clip_value >= 0.0 { Ok(Self(clip_value + 0.0)) } else { Err(Error::ClipValue(clip_value)) }
    }

    /// The limit.
    #[must_use]
    pub fn get(self) -> f32 {
        self.0
    }

    /// The largest value of `format` that is not above the limit; infinity if there is no limit.
    #[must_use]
    pub fn within(self, format: Format) -> f32 {
        let value = self.0;
        match format {
            _ if value == f32::INFINITY => value,
            Format::F32 => value,
            Format::Bf16 => f32::from_bits(value.to_bits() & 0xffff_0000),
            Format::F16 if value >= 65504.0 => 65504.0,
            // Eleven bits, down to the smallest normal value.
            Format::F16 if value >= 6.103_515_6e-5 => f32::from_bits(value.to_bits() & !0x1fff),
            // Multiples of 2^-24.
            Format::F16 => (value * 16_777_216.0).floor() / 16_777_216.0,
        }
    }
}

/// What backward multiplied the loss by, and the step divides out. Any positive finite f32; results are exact for
/// subnormal ones too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale(f32);

impl LossScale {
    /// The loss was not scaled (bf16 and f32 training).
    pub const ONE: Self = Self(1.0);

    /// The scale that backward used.
    ///
    /// # Errors
    /// [`Error::LossScale`] if it is zero, negative, infinite or NaN.
    pub fn new(scale: f32) -> Result<Self, Error> {
        if scale > 0.0 && scale.is_finite() { Ok(Self(scale)) } else { Err(Error::LossScale(scale)) }
    }

    /// The scale.
    #[must_use]
    pub fn get(self) -> f32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains() {
        for bad in [-1.0, -f32::MIN_POSITIVE, f32::NEG_INFINITY, f32::NAN] {
            assert!(matches!(ClipNorm::new(bad), Err(Error::MaxNorm(_))), "{bad}");
            assert!(matches!(LossScale::new(bad), Err(Error::LossScale(_))), "{bad}");
            let clip = ClipNorm::new(1.0).unwrap();
            assert!(matches!(clip.with_eps(bad), Err(Error::Eps(_))), "{bad}");
        }
        for bad in [0.0, -0.0, f32::INFINITY] {
            assert!(matches!(LossScale::new(bad), Err(Error::LossScale(_))), "{bad}");
        }
        for good in [0.0, -0.0, 1e-45, f32::MAX, f32::INFINITY] {
            assert!(ClipNorm::new(good).is_ok(), "{good}");
        }
        assert_eq!(ClipNorm::new(-0.0).unwrap().max_norm().to_bits(), 0);
        assert!(LossScale::new(1e-45).is_ok());
        assert!(matches!(ClipNorm::new(1.0).unwrap().with_eps(f32::INFINITY), Err(Error::Eps(_))));
        for bad in [-1.0, -f32::MIN_POSITIVE, f32::NEG_INFINITY, f32::NAN] {
            assert!(matches!(ClipValue::new(bad), Err(Error::ClipValue(_))), "{bad}");
        }
        assert_eq!(ClipValue::new(-0.0).unwrap().get().to_bits(), 0);
    }

    #[test]
    fn a_value_is_rounded_down_into_each_format() {
        let mut bits = 0u32;
        while bits < 0x7f80_0000 {
            let value = f32::from_bits(bits);
            let clip = ClipValue::new(value).unwrap();
            assert_eq!(clip.within(Format::F32).to_bits(), bits);
            for format in [Format::F16, Format::Bf16] {
                let limit = clip.within(format);
                let up: f32 = match format {
                    Format::F16 => {
                        let has = half::f16::from_f32(limit);
                        assert_eq!(has.to_f32(), limit, "{value:e}");
                        half::f16::from_bits(has.to_bits() + 1).to_f32()
                    }
                    _ => f32::from_bits(limit.to_bits() + 0x1_0000),
                };
                assert!(limit <= value && value < up, "{format} {value:e}: {limit:e} {up:e}");
            }
            bits += 0x1357;
        }
        for format in Format::ALL {
            assert_eq!(ClipValue::new(f32::INFINITY).unwrap().within(format), f32::INFINITY);
        }
    }
}
