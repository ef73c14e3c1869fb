//! What is measured.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// A pass that only reads: the fastest kernel for it, over one buffer of as many bytes.
    LimitRead,
    /// A pass that reads and writes.
    LimitReadWrite,
    /// Unscale, check, norm, clip: everything, with something to write.
    Step,
    /// Unscale and check, without a limit for the norm.
    StepUnscale,
    /// A step that finds the norm below the limit, and the scale 1.
    StepNothingToClip,
    /// A step that finds a NaN.
    StepNonfinite,
    /// A step that leaves the multiplication to the optimizer's kernel.
    StepDeferred,
    /// Unscale and check, norm, clip as three plain f32 passes.
    ThreePass,
    /// A dispatch and a readback for each tensor.
    PerTensorReadback,
    PytorchCpu,
    PytorchCuda,
}

impl Variant {
    pub const ALL: [Self; 11] = [
        Self::LimitRead,
        Self::LimitReadWrite,
        Self::Step,
        Self::StepUnscale,
        Self::StepNothingToClip,
        Self::StepNonfinite,
        Self::StepDeferred,
        Self::ThreePass,
        Self::PerTensorReadback,
        Self::PytorchCpu,
        Self::PytorchCuda,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::LimitRead => "limit-read",
            Self::LimitReadWrite => "limit-read-write",
            Self::Step => "step",
            Self::StepUnscale => "step-unscale",
            Self::StepNothingToClip => "step-nothing-to-clip",
            Self::StepNonfinite => "step-nonfinite",
            Self::StepDeferred => "step-deferred",
            Self::ThreePass => "three-pass",
            Self::PerTensorReadback => "per-tensor-readback",
            Self::PytorchCpu => "pytorch-cpu",
            Self::PytorchCuda => "pytorch-cuda",
        }
    }

    /// How often it reads or writes all gradients.
    pub fn passes(self) -> f64 {
        match self {
            Self::LimitRead | Self::StepNothingToClip | Self::StepNonfinite | Self::StepDeferred => 1.0,
            Self::LimitReadWrite => 2.0,
            Self::Step | Self::StepUnscale | Self::PerTensorReadback => 3.0,
            Self::ThreePass | Self::PytorchCpu | Self::PytorchCuda => 5.0,
        }
    }

    /// Whether the job can be done by reading alone; else it takes a read pass and a read-write pass.
    pub fn only_reads(self) -> bool {
        matches!(self, Self::LimitRead | Self::StepNothingToClip | Self::StepNonfinite | Self::StepDeferred)
    }

    pub fn is_limit(self) -> bool {
        matches!(self, Self::LimitRead | Self::LimitReadWrite)
    }

    pub fn is_pytorch(self) -> bool {
        matches!(self, Self::PytorchCpu | Self::PytorchCuda)
    }
}
