//! The three kinds of limit, on the reference and recorded for a GPU.

use gradclip::reference::{Outcome, TensorBits, step, step_clip_value, step_per_tensor};
use gradclip::{ClipNorm, ClipValue, Error, GradSet, LossScale, NormType, Prepare, TensorClip, wgpu};

/// What a step is limited by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// One norm of all tensors, if at all.
    Norm(Option<ClipNorm>),
    /// The norm of each tensor by itself.
    EachTensor(ClipNorm),
    /// The magnitude of each element.
    Value(ClipValue),
}

impl Limit {
    /// The CPU reference's step, in place; and what it did to each tensor, if they were limited one by one.
    pub fn on_reference(
        self,
        tensors: &mut [TensorBits<'_>],
        scale: LossScale,
    ) -> (Outcome, Vec<TensorClip>) {
        match self {
            Self::Norm(clip) => (step(tensors, scale, clip), Vec::new()),
            Self::EachTensor(clip) => step_per_tensor(tensors, scale, clip),
            Self::Value(clip) => (step_clip_value(tensors, scale, clip), Vec::new()),
        }
    }

    /// What a set has to be prepared for.
    pub fn needs(self) -> Vec<Prepare> {
        match self {
            Self::Norm(Some(clip)) if clip.norm_type() == NormType::L1 => vec![Prepare::L1],
            Self::Norm(_) => vec![],
            Self::EachTensor(_) => vec![Prepare::L1, Prepare::EachTensor],
            Self::Value(_) => vec![Prepare::EachTensor],
        }
    }

    /// Prepares the set and records the step.
    pub fn record(
        self,
        set: &GradSet,
        encoder: &mut wgpu::CommandEncoder,
        scale: LossScale,
    ) -> Result<(), Error> {
        set.prepare(self.needs())?;
        match self {
            Self::Norm(clip) => set.record(encoder, scale, clip),
            Self::EachTensor(clip) => set.record(encoder, scale, each_tensor(clip)),
            Self::Value(clip) => set.record(encoder, scale, clip),
        }
    }

    /// What the step did to each tensor, in the order of the set, if they were limited one by one.
    pub fn read_each(self, set: &GradSet) -> Result<Vec<TensorClip>, Error> {
        match self {
            Self::EachTensor(_) => set.read_tensor_clips(),
            Self::Norm(_) | Self::Value(_) => Ok(Vec::new()),
        }
    }
}

/// A limit for the norm of each tensor by itself.
pub fn each_tensor(clip: ClipNorm) -> gradclip::Limit<gradclip::InPlace> {
    gradclip::Limit::each_tensor(clip.max_norm()).eps(clip.eps()).norm_type(clip.norm_type())
}
