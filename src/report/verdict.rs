//! What a step decided, as the GPU has it.

use crate::R24;

/// Bytes of the verdict in front of the per-tensor counts.
pub(crate) const VERDICT_BYTES: u64 = size_of::<Verdict>() as u64;

/// The verdict's part of a report buffer.
pub(crate) fn verdict_of(report: &wgpu::Buffer) -> wgpu::BufferBinding<'_> {
    wgpu::BufferBinding { buffer: report, offset: 0, size: wgpu::BufferSize::new(VERDICT_BYTES) }
}

/// The twin of `struct Verdict` in `verdict.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Verdict {
    /// 1: the step is to be skipped and no gradient changed.
    pub skip: u32,
    /// 1: a gradient was NaN or infinite, or `overflow`.
    pub found_inf: u32,
    /// 1: all gradients were finite, but a result would not fit its format.
    pub overflow: u32,
    /// 1: the norm was above the threshold from which steps are skipped.
    pub above: u32,
    /// 0: nothing to do, 1: multiply by `factor`, 2: multiply by the exact factor.
    pub apply: u32,
    /// The factor as f32 if `apply` is 1.
    pub factor: f32,
    /// Exact factor: significand.
    pub factor_significand: u32,
    /// Exact factor: power of two.
    pub factor_exponent: i32,
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
    /// How many of those were not skipped, modulo 2^32: the t of AdamW's bias correction.
    pub taken: u32,
}

impl Verdict {
    /// The norm, exactly.
    #[must_use]
    pub fn norm(&self) -> R24 {
        R24 { significand: self.norm_significand, exponent: self.norm_exponent }
    }

    /// Before any step ran: a kernel that reads it skips.
    pub(crate) fn not_run() -> Self {
        Self { skip: 1, found_inf: 1, ..bytemuck::Zeroable::zeroed() }
    }
}
