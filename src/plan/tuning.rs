//! How to cut the work, as far as a measurement chose it.

use super::PlanLimits;

/// What the probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub tile_words: u32,
    pub windows_per_dispatch: u32,
    pub lone_window_tiles: u64,
    pub probed: bool,
}

impl Tuning {
    pub fn untried(limits: &PlanLimits) -> Self {
        Self {
            tile_words: limits.tile_words,
            windows_per_dispatch: limits.windows_per_dispatch,
            lone_window_tiles: limits.lone_window_tiles,
            probed: false,
        }
    }
}
