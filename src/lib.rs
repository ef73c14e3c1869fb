//! draft
mod clip;
mod compiled;
mod context;
mod error;
mod format;
mod grad_set;
mod nonfinite;
pub mod plan;
mod r24;
mod readback;
pub mod reference;
mod report;
mod shader;

pub use clip::{ClipNorm, LossScale};
pub use context::Context;
pub use error::Error;
pub use format::Format;
pub use grad_set::{GradSet, GradSetBuilder, TensorSlice};
pub use nonfinite::Nonfinite;
pub use r24::R24;
pub use report::{Report, TensorReport, Verdict};
pub use shader::{Kernel, VERDICT_WGSL};
pub use wgpu;
