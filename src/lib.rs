//! Unscale, inf/NaN check and global-norm gradient clipping for mixed-precision training, on any GPU that wgpu reaches,
//! equal to a CPU [`reference`](mod@reference) on every bit.
//!
//! Mixed-precision training multiplies the loss by a scale S so that small gradients survive f16. After the last
//! microbatch and before the optimizer, one [step](GradSet::record) divides S out again, looks for NaN and infinity,
//! measures **one** L2 norm over all gradients of the optimizer, and scales them in place so that the norm is at most
//! `max_norm`. It reads every gradient twice and writes it once, in the buffers where the engine has it, and reads
//! nothing back: what it decided stays on the GPU as a [`Verdict`] that other kernels can bind, and a [`Report`] can be
//! read later.
//!
//! ```
//! use gradclip::{Context, Format, GradSet, Limit, TensorSlice, wgpu};
//! use wgpu::util::{BufferInitDescriptor, DeviceExt};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The engine's device, and a page in which its backward pass left gradients: 24 and 32, at a loss scale of 8.
//! let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
//! let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
//! let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
//! let page = device.create_buffer_init(&BufferInitDescriptor {
//!     label: None,
//!     contents: bytemuck::cast_slice(&[24f32, 32.0]),
//!     usage: wgpu::BufferUsages::STORAGE,
//! });
//!
//! // Once: the gradients of one optimizer.
//! let gpu = Context::new(&device, &queue)?;
//! let grads = GradSet::builder("adamw")
//!     .tensor("weight", TensorSlice { buffer: &page, offset: 0, len: 1, format: Format::F32 })
//!     .tensor("bias", TensorSlice { buffer: &page, offset: 4, len: 1, format: Format::F32 })
//!     .build(&gpu)?;
//!
//! // Every step, after the last microbatch.
//! let mut encoder = device.create_command_encoder(&Default::default());
//! grads.record(&mut encoder, 8.0, Limit::norm(1.0))?;
//! queue.submit([encoder.finish()]);
//!
//! // Whenever a log wants it. The gradients are now 0.6 and 0.8.
//! let report = grads.read_report()?;
//! assert_eq!(report.total_norm, Some(5.0));
//! assert!(report.clipped && !report.found_inf);
//! # Ok(())
//! # }
//! ```
//!
//! # What is exact
//!
//! The result of a step is a function of the gradient bits, the scale, `max_norm` and `eps` alone. It does not depend on
//! the adapter, the driver, how tensors are cut or where they lie. [`reference`](mod@reference) says what it is. Finite gradients have
//! a finite norm, whatever their size; nonfinite ones leave every byte as it was.
//!
//! On a driver that no one has tried, [`Context::self_test`] shows whether it holds, and [`Context::environment`] is what
//! a bug report needs.
//!
//! # With a dynamic loss scale
//!
//! [`GradScaler`] keeps the scale on the GPU for one or more optimizers, and makes the wrong order a type error. See its
//! example.
//!
//! # f16
//!
//! In place, an f16 gradient that unscales to 2^-25 or less becomes 0, which loses what the loss scale had saved. Defer the
//! multiplication to the optimizer's kernel ([`GradSet::record_deferred`], [`scaled_wgsl`]), or
//! [count](Step::count_lost) what is lost.
//!
//! # Limits
//!
//! [`Limit`] is how a step is limited: one norm (L2, L1 or Linf), the norm of each tensor, each element, by a norm or a
//! coefficient from elsewhere, skipped above a threshold. Its numbers, and what gradients are divided by ([`Unscale`]), are
//! values or [words](Word) of the engine's buffers. [`Joint`] is one norm over several optimizers. [`GradSet::measure`]
//! measures and decides nothing.
//!
//! # State
//!
//! [`GradSet::state`] and [`GradScaler::state_dict`] are what a checkpoint saves: the loss scale, and the steps that each
//! optimizer has taken, by name.
//!
//! # Gradients on several devices
//!
//! [`GradSet::record_ledger`] measures a part of the gradients, [`GradSet::record_merged`] finishes the step from the
//! [`Ledger`] of all parts. Between them is one all-reduce of integers, over whatever carries them.
//!
//! # Features
//!
//! `serde` (off) makes reports, ledgers, the scaler's state, the self-test and the environment serde types.
//!
//! `wgpu-default` (on) turns on wgpu's default features, all backends among them. An engine that chooses its own turns
//! it off. The crate is made for the wgpu version that it re-exports as [`wgpu`].

#![deny(missing_docs)]

mod clip;
mod delta_norm;
mod environment;
mod error;
mod exact;
mod format;
mod gpu;
mod grad_set;
mod ledger;
mod limit;
mod nonfinite;
pub mod plan;
mod r24;
pub mod reference;
mod report;
mod scalar;
mod scaler;
mod self_test;
mod slice;

pub use clip::{ClipNorm, ClipValue, LossScale, NormType};
pub use delta_norm::DeltaNorm;
pub use environment::Environment;
pub use error::Error;
pub use format::Format;
pub use gpu::context::Context;
pub use gpu::shader::Kernel;
pub use gpu::wgsl::{VERDICT_WGSL, scaled_wgsl};
pub use grad_set::{
    GradSet, GradSetBuilder, Joint, Measure, Measured, Measurement, Members, Prepare, SetState,
};
pub use ledger::Ledger;
pub use limit::{InPlace, Limit, OneFactor};
pub use nonfinite::Nonfinite;
pub use r24::R24;
pub use report::{Report, TensorClip, TensorLost, TensorNorm, TensorReport, Verdict};
pub use scalar::{Scalar, Unscale, Word};
pub use scaler::GradScaler;
pub use scaler::config::{HysteresisRefill, ScaleMode, ScalerConfig, SkipRule};
pub use scaler::order::{Accumulating, Limited, Recorded, Sharded, Step, Unscaled};
pub use scaler::reports::{StepReport, UpdateReport};
pub use scaler::state::{ScalerState, TorchState};
pub use self_test::{Difference, SelfTest, SelfTestCase};
pub use slice::{Gradient, Role, TensorSlice};
pub use wgpu;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
