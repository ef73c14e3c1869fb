//! The numbers that a step is told: values, or words of a buffer that are read when the step runs.

use crate::{Error, LossScale};

/// A number that a step is told: its value now, or a [`Word`] of a buffer of the caller's.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Scalar {
    /// The number itself. It reaches the GPU in order with the commands that it was recorded with.
    Value(f32),
    /// What a word of a buffer holds when the step runs on the GPU.
    Word(Word),
}

/// One f32 in a buffer of the caller's, made by [`Context::word`](crate::Context::word). Cheap to clone.
///
/// The step reads it when it runs. What is not allowed there (a scale that is not positive and finite, a limit or `eps` that
/// is negative or NaN) skips the step, with the reason `bad_scalar`.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) offset: u64,
    /// The word, as `gather` binds it.
    pub(crate) group: wgpu::BindGroup,
}

impl Word {
    /// The buffer.
    #[must_use]
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Where in the buffer the number lies, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Self {
        Self::Value(value)
    }
}

impl From<Word> for Scalar {
    fn from(word: Word) -> Self {
        Self::Word(word)
    }
}

impl From<&Word> for Scalar {
    fn from(word: &Word) -> Self {
        Self::Word(word.clone())
    }
}

impl From<LossScale> for Scalar {
    fn from(scale: LossScale) -> Self {
        Self::Value(scale.get())
    }
}

impl Scalar {
    /// The value, if the host knows it.
    pub(crate) fn value(&self) -> Option<f32> {
        match self {
            Self::Value(value) => Some(*value),
            Self::Word(_) => None,
        }
    }

    /// Checks a value that the host knows; -0 is 0. A word is checked on the GPU.
    pub(crate) fn check(
        &self,
        allowed: impl Fn(f32) -> bool,
        error: impl Fn(f32) -> Error,
    ) -> Result<(), Error> {
        match self.value() {
            Some(value) if !allowed(value) => Err(error(value)),
            _ => Ok(()),
        }
    }
}

/// What gradients are divided by, once: the loss scale, and beside it the number of tokens, samples or accumulated
/// microbatches where the loss was a sum over them.
///
/// Every gradient is divided by the product of both, which is exact: one rounding, R24(1 / (scale * divisor)). The norm is
/// that of the divided gradients. `1024.0`, a [`LossScale`], a [`Scalar`] or a [`Word`] are one without a divisor.
///
/// ```
/// use gradclip::Unscale;
/// let unscale = Unscale::by(1024.0).divide_by(10.0); // a loss of ten tokens, times 1024
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Unscale {
    pub(crate) scale: Scalar,
    pub(crate) divisor: Scalar,
}

impl Unscale {
    /// Divides by a loss scale: positive and finite.
    #[must_use]
    pub fn by(scale: impl Into<Scalar>) -> Self {
        Self { scale: scale.into(), divisor: Scalar::Value(1.0) }
    }

    /// Divides by another number too: positive and finite.
    #[must_use]
    pub fn divide_by(self, divisor: impl Into<Scalar>) -> Self {
        Self { divisor: divisor.into(), ..self }
    }

    /// The loss scale.
    #[must_use]
    pub fn scale(&self) -> &Scalar {
        &self.scale
    }

    /// The other number.
    #[must_use]
    pub fn divisor(&self) -> &Scalar {
        &self.divisor
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let positive = |value: f32| value > 0.0 && value.is_finite();
        self.scale.check(positive, Error::LossScale)?;
        self.divisor.check(positive, Error::Divisor)
    }
}

impl<S: Into<Scalar>> From<S> for Unscale {
    fn from(scale: S) -> Self {
        Self::by(scale)
    }
}
