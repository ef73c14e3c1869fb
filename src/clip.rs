//! What a step is told: the limit of the norm and the loss scale.

use crate::Error;

/// The limit of the global L2 norm: gradients whose norm is above `max_norm` are multiplied by
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
            Ok(Self { max_norm: max_norm + 0.0, eps: Self::DEFAULT_EPS })
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
    }
}
