//! What a plan must keep to.

use super::{MAX_TILE_WORDS, MAX_WINDOWS, OWN_STORAGE_BUFFERS};
use crate::Error;

/// Native backends end a binding at 2^31 - 1 bytes, and Metal's `arrayLength` wraps at 2^32.
const MAX_WINDOW_BYTES: u64 = (1 << 31) - 1;

/// What a plan must keep to. [`Context::plan_limits`](crate::Context::plan_limits) is right for every engine; smaller
/// numbers make smaller dispatches and change no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanLimits {
    /// Largest binding in bytes. Rounded down to a multiple of `window_align`, and capped below 2^31.
    pub window_bytes: u64,
    /// Alignment of a binding's offset in bytes.
    pub window_align: u64,
    /// Windows bound in one dispatch.
    pub windows_per_dispatch: u32,
    /// Workgroups along one dimension of a dispatch; a second dimension is used beyond that.
    pub groups_per_dimension: u32,
    /// Elements that one dispatch covers at most (never less than one tile), so that no dispatch runs into a watchdog.
    pub elements_per_dispatch: u64,
    /// 32-bit words that one workgroup reads, at most 131072.
    pub tile_words: u32,
    /// A window with at least this many full tiles gets dispatches of its own, whose kernels need not choose a window.
    pub lone_window_tiles: u64,
}

impl PlanLimits {
    /// The limits of a device (not the adapter's: the device may have been made with less).
    #[must_use]
    pub fn from_device(device: &wgpu::Device) -> Self {
        Self::from_limits(&device.limits())
    }

    /// What every WebGPU device offers: 128 MiB a binding at multiples of 256 bytes, 8 storage buffers, 65535
    /// workgroups.
    #[must_use]
    pub fn webgpu() -> Self {
        Self::from_limits(&wgpu::Limits::default())
    }

    fn from_limits(limits: &wgpu::Limits) -> Self {
        Self {
            window_bytes: limits.max_storage_buffer_binding_size,
            window_align: u64::from(limits.min_storage_buffer_offset_alignment),
            // One less than the device reports: Metal keeps a slot for itself.
            windows_per_dispatch: limits
                .max_storage_buffers_per_shader_stage
                .saturating_sub(OWN_STORAGE_BUFFERS + 1)
                .min(MAX_WINDOWS),
            groups_per_dimension: limits.max_compute_workgroups_per_dimension,
            elements_per_dispatch: 1 << 28,
            tile_words: 16_384,
            lone_window_tiles: 4096,
        }
    }

    pub(super) fn check(&self) -> Result<Self, Error> {
        // A word is bound whole.
        let window_align = self.window_align.div_ceil(4).max(1).saturating_mul(4);
        let window_bytes = self.window_bytes.min(MAX_WINDOW_BYTES) / window_align * window_align;
        for (name, value) in [
            ("window_bytes", window_bytes),
            ("windows_per_dispatch", u64::from(self.windows_per_dispatch)),
            ("groups_per_dimension", u64::from(self.groups_per_dimension)),
            ("elements_per_dispatch", self.elements_per_dispatch),
            ("tile_words", u64::from(self.tile_words)),
        ] {
            if value == 0 {
                return Err(Error::ZeroLimit { limit: name });
            }
        }
        Ok(Self {
            window_bytes,
            window_align,
            tile_words: self.tile_words.min(MAX_TILE_WORDS),
            windows_per_dispatch: self.windows_per_dispatch.min(MAX_WINDOWS),
            // The kernels number workgroups in 32 bits.
            groups_per_dimension: self.groups_per_dimension.min(65_535),
            ..*self
        })
    }
}
