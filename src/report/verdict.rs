//! What a step decided, as the GPU has it.

use crate::R24;

/// Bytes of the verdict that an engine binds.
pub(crate) const VERDICT_BYTES: u64 = size_of::<Verdict>() as u64;
/// Where in a report the set's own part starts, and where what is counted by tensor: WebGPU's largest alignment.
pub(crate) const OWN_AT: u64 = 256;
pub(crate) const HEAD_BYTES: u64 = 512;

/// The verdict's part of a report buffer.
pub(crate) fn verdict_of(report: &wgpu::Buffer) -> wgpu::BufferBinding<'_> {
    wgpu::BufferBinding { buffer: report, offset: 0, size: wgpu::BufferSize::new(VERDICT_BYTES) }
}

/// The twin of `struct GradclipVerdict` in `verdict.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[non_exhaustive]
pub struct Verdict {
    /// 1: the step is to be skipped and no gradient changed. The next six say why, each by a 1.
    pub skip: u32,
    /// A gradient was NaN or infinite, or `overflow`.
    pub found_inf: u32,
    /// All gradients were finite, but a result would not fit its format.
    pub overflow: u32,
    /// The norm was above the threshold from which steps are skipped.
    pub above: u32,
    /// A number that the step read from a buffer was none that it can use.
    pub bad_scalar: u32,
    /// Another set that is stepped together with this one is skipped.
    pub other: u32,
    /// Too many steps in a row were skipped: nothing moves until [`GradScaler::resume`](crate::GradScaler::resume).
    pub halted: u32,
    /// What is left to do: 0 nothing, 1 multiply by `factor`, 2 multiply by the exact factor.
    pub apply: u32,
    /// The factor as f32 if `apply` is 1; 1 if nothing is left to do.
    pub factor: f32,
    /// Exact factor that is left to multiply by: significand.
    pub factor_significand: u32,
    /// Exact factor that is left to multiply by: power of two.
    pub factor_exponent: i32,
    /// What the gradients are multiplied by in all, in place or by whoever reads this: significand.
    pub step_factor_significand: u32,
    /// What the gradients are multiplied by in all: power of two.
    pub step_factor_exponent: i32,
    /// Norm of the unscaled gradients: significand.
    pub norm_significand: u32,
    /// Norm of the unscaled gradients: power of two.
    pub norm_exponent: i32,
    /// Clip coefficient: significand.
    pub coefficient_significand: u32,
    /// Clip coefficient: power of two.
    pub coefficient_exponent: i32,
    /// The loss scale that was divided out.
    pub scale: f32,
    /// The run that the loss scale was last updated from.
    pub consumed: u32,
    /// Steps of this set that the GPU has run, modulo 2^32.
    pub run: u32,
    /// The t of AdamW's bias correction: steps of this set that were taken, this one included.
    pub taken: u32,
}

impl Verdict {
    /// The norm, exactly.
    #[must_use]
    pub fn norm(&self) -> R24 {
        R24 { significand: self.norm_significand, exponent: self.norm_exponent }
    }

    /// The clip coefficient, exactly.
    #[must_use]
    pub fn coefficient(&self) -> R24 {
        R24 { significand: self.coefficient_significand, exponent: self.coefficient_exponent }
    }

    /// What the gradients are multiplied by in all, exactly.
    #[must_use]
    pub fn step_factor(&self) -> R24 {
        R24 { significand: self.step_factor_significand, exponent: self.step_factor_exponent }
    }

    /// Before any step ran: a kernel that reads it skips.
    pub(crate) fn not_run() -> Self {
        Self { skip: 1, found_inf: 1, ..bytemuck::Zeroable::zeroed() }
    }
}

/// The twin of `struct Own` in `own.wgsl`, as far as the host reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct Own {
    pub skip: u32,
    pub apply: u32,
    pub factor: f32,
    pub factor_significand: u32,
    pub factor_exponent: i32,
    pub inverse_significand: u32,
    pub inverse_exponent: i32,
    pub max_norm: u32,
    pub eps: u32,
    pub steps: u32,
    pub consecutive_skipped: u32,
    pub skipped_before: u32,
    pub words: [u32; 8],
}

/// Where `Own::steps` and `Own::consecutive_skipped` lie in a report.
pub(crate) const STATE_AT: u64 = OWN_AT + std::mem::offset_of!(Own, steps) as u64;
