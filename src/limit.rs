//! How the gradients of a step are limited.

use std::marker::PhantomData;

use crate::{ClipNorm, ClipValue, Error, NormType, Scalar};

/// A [`Limit`] after which one factor stands for all gradients, so that a step can be deferred to the optimizer's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneFactor {}

/// A [`Limit`] that treats tensors or elements by themselves, so that no factor can stand for it: it is applied in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {}

/// How a step limits the gradients, with the numbers as values or as words of a buffer.
///
/// | limit | what it does | PyTorch and others |
/// | --- | --- | --- |
/// | [`Limit::none`] | nothing: the step only unscales | `GradScaler.unscale_` |
/// | [`Limit::norm`] | one norm of all tensors is at most `max_norm` | `clip_grad_norm_` |
/// | [`Limit::each_tensor`] | the norm of each tensor by itself is | Keras' `clipnorm`, Burn |
/// | [`Limit::value`] | the magnitude of each element is | `clip_grad_value_` |
/// | [`Limit::given_norm`] | as `norm`, by a norm that something else measured | `clip_grads_with_norm_` |
/// | [`Limit::coefficient`] | all are multiplied by a coefficient from elsewhere | |
///
/// The norm that is measured, for the limit and for reports, is L2 or what [`Limit::norm_type`] says. Of complex gradients
/// stored as pairs of reals the L2 norm is that of the magnitudes; L1, Linf and limits of values are those of the real and
/// imaginary parts.
///
/// Numbers are checked when the step is recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit<K = OneFactor> {
    pub(crate) rule: Rule,
    pub(crate) norm_type: NormType,
    pub(crate) eps: Scalar,
    pub(crate) skip_above: Option<Scalar>,
    /// A norm that is limited after the values were.
    pub(crate) then: Option<ClipNorm>,
    kind: PhantomData<K>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    None,
    Norm(Scalar),
    GivenNorm { norm: Scalar, max_norm: Scalar },
    Coefficient(Scalar),
    EachTensor(Scalar),
    Value(f32),
}

impl Limit {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            norm_type: NormType::L2,
            eps: Scalar::Value(ClipNorm::DEFAULT_EPS),
            skip_above: None,
            then: None,
            kind: PhantomData,
        }
    }

    /// No limit: the step divides by the scale and looks for NaN and infinity.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Rule::None)
    }

    /// The norm of all tensors is at most `max_norm`: if it is above, every gradient is multiplied by
    /// `max_norm / (norm + eps)`, with an `eps` of 1e-6 unless [`Limit::eps`] says otherwise. 0 is a limit, infinity is none.
    #[must_use]
    pub fn norm(max_norm: impl Into<Scalar>) -> Self {
        Self::new(Rule::Norm(max_norm.into()))
    }

    /// [`Limit::norm`] by a norm that something else measured: that of the unscaled gradients, finite and not negative. The
    /// gradients are read all the same, to look for NaN and infinity; reports have the norm that was given.
    #[must_use]
    pub fn given_norm(norm: impl Into<Scalar>, max_norm: impl Into<Scalar>) -> Self {
        Self::new(Rule::GivenNorm { norm: norm.into(), max_norm: max_norm.into() })
    }

    /// Every unscaled gradient is multiplied by `coefficient`, finite and not negative, whatever the norm.
    #[must_use]
    pub fn coefficient(coefficient: impl Into<Scalar>) -> Self {
        Self::new(Rule::Coefficient(coefficient.into()))
    }

    /// The norm of each tensor by itself is at most `max_norm`. That changes the direction of the update, and is neither
    /// PyTorch's `clip_grad_norm_` nor Megatron's clipping; [`Limit::norm`] is what most papers mean.
    ///
    /// What is not finite, or would overflow, in one tensor skips the step for all. The report's norm is that of all
    /// tensors, its coefficient the smallest of any. A tensor outside the norm is only unscaled.
    #[must_use]
    pub fn each_tensor(max_norm: impl Into<Scalar>) -> Limit<InPlace> {
        Self::new(Rule::EachTensor(max_norm.into())).in_place()
    }

    /// The magnitude of each element is at most `clip_value`: what is larger becomes it, with its sign. 0 is a limit,
    /// infinity is none. In a format that does not have `clip_value` it is the next smaller value that the format has. A
    /// finite element that is too large for its format when divided by the scale is limited like any other.
    #[must_use]
    pub fn value(clip_value: f32) -> Limit<InPlace> {
        Self::new(Rule::Value(clip_value)).in_place()
    }

    fn in_place(self) -> Limit<InPlace> {
        let Self { rule, norm_type, eps, skip_above, then, kind: _ } = self;
        Limit { rule, norm_type, eps, skip_above, then, kind: PhantomData }
    }
}

impl Limit<InPlace> {
    /// Then limits the norm of what is left, in the same step: PyTorch's `clip_grad_value_` and after it `clip_grad_norm_`.
    /// The report's norm and coefficient are those of the second limit.
    #[must_use]
    pub fn then_norm(self, clip: ClipNorm) -> Self {
        Self { then: Some(clip), ..self }
    }
}

impl<K> Limit<K> {
    /// What is added to a norm in the denominator: 0 or more and finite. 0 gives the ideal rule `max_norm / norm`.
    #[must_use]
    pub fn eps(self, eps: impl Into<Scalar>) -> Self {
        Self { eps: eps.into(), ..self }
    }

    /// Another norm than L2.
    #[must_use]
    pub fn norm_type(self, norm_type: NormType) -> Self {
        Self { norm_type, ..self }
    }

    /// Skips the step if the norm of the unscaled gradients is above this: more than 0.
    #[must_use]
    pub fn skip_above(self, norm: impl Into<Scalar>) -> Self {
        Self { skip_above: Some(norm.into()), ..self }
    }

    /// Checks the numbers that the host knows.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (limit, finite) = (|v: f32| v >= 0.0, |v: f32| v >= 0.0 && v.is_finite());
        match &self.rule {
            Rule::None => {}
            Rule::Norm(max_norm) | Rule::EachTensor(max_norm) => max_norm.check(limit, Error::MaxNorm)?,
            Rule::GivenNorm { norm, max_norm } => {
                norm.check(finite, Error::GivenNorm)?;
                max_norm.check(limit, Error::MaxNorm)?;
            }
            Rule::Coefficient(coefficient) => coefficient.check(finite, Error::Coefficient)?,
            Rule::Value(value) => ClipValue::new(*value).map(drop)?,
        }
        self.eps.check(finite, Error::Eps)?;
        let above = |v: f32| v > 0.0;
        self.skip_above.as_ref().map_or(Ok(()), |norm| norm.check(above, Error::SkipAbove))
    }

    /// What the crate works with: of which kind it is no longer matters.
    pub(crate) fn any(self) -> AnyLimit {
        let Self { rule, norm_type, eps, skip_above, then, kind: _ } = self;
        Limit { rule, norm_type, eps, skip_above, then, kind: PhantomData }
    }
}

/// A limit of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Any {}
pub(crate) type AnyLimit = Limit<Any>;

impl AnyLimit {
    /// Whether one factor stands for all gradients.
    pub fn one_factor(&self) -> bool {
        !matches!(self.rule, Rule::EachTensor(_) | Rule::Value(_))
    }
}

impl From<ClipNorm> for Limit {
    fn from(clip: ClipNorm) -> Self {
        Self::norm(clip.max_norm()).eps(clip.eps()).norm_type(clip.norm_type())
    }
}

impl From<Option<ClipNorm>> for Limit {
    fn from(clip: Option<ClipNorm>) -> Self {
        clip.map_or_else(Self::none, Self::from)
    }
}

impl From<ClipValue> for Limit<InPlace> {
    fn from(clip: ClipValue) -> Self {
        Limit::value(clip.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked_by_name() {
        let bad = [-1.0, f32::NAN, f32::NEG_INFINITY];
        for value in bad {
            assert!(matches!(Limit::norm(value).check(), Err(Error::MaxNorm(_))));
            assert!(matches!(Limit::each_tensor(value).check(), Err(Error::MaxNorm(_))));
            assert!(matches!(Limit::value(value).check(), Err(Error::ClipValue(_))));
            assert!(matches!(Limit::given_norm(value, 1.0).check(), Err(Error::GivenNorm(_))));
            assert!(matches!(Limit::given_norm(1.0, value).check(), Err(Error::MaxNorm(_))));
            assert!(matches!(Limit::coefficient(value).check(), Err(Error::Coefficient(_))));
            assert!(matches!(Limit::norm(1.0).eps(value).check(), Err(Error::Eps(_))));
            assert!(matches!(Limit::none().skip_above(value).check(), Err(Error::SkipAbove(_))));
        }
        assert!(matches!(Limit::norm(1.0).eps(f32::INFINITY).check(), Err(Error::Eps(_))));
        assert!(matches!(Limit::none().skip_above(0.0).check(), Err(Error::SkipAbove(_))));
        assert!(matches!(Limit::coefficient(f32::INFINITY).check(), Err(Error::Coefficient(_))));
        for good in [0.0, -0.0, 1e-45, f32::INFINITY] {
            assert_eq!(Limit::norm(good).check(), Ok(()), "{good}");
        }
    }
}
