//! The state of a scaler as a value: to save with a checkpoint, and to go on from bit for bit.

use crate::{Error, ScaleMode, ScalerConfig};

/// Everything that a [`GradScaler`](crate::GradScaler) remembers between steps.
///
/// With the `serde` feature it is what a checkpoint stores. Field names follow PyTorch's `state_dict` where it has the
/// field.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct ScalerState {
    /// Version of this format: [`ScalerState::VERSION`].
    pub version: u32,
    /// The loss scale.
    pub scale: f32,
    /// Finite updates since the scale last grew or backed off.
    pub growth_tracker: u32,
    /// Bad updates until the scale backs off.
    pub hysteresis_left: u32,
    /// Updates skipped so far for inf, NaN or overflow.
    pub skipped: u32,
    /// The same, in a row, up to now.
    pub consecutive_skipped: u32,
    /// Updates so far.
    pub updates: u32,
    /// Steps of single optimizers that were taken.
    pub stepped: u32,
    /// Of these, those that were clipped.
    pub clipped: u32,
    /// Steps of single optimizers left out because their norm was above `skip_above`.
    pub above: u32,
    /// Steps of single optimizers that were updated from but never ran on the GPU.
    pub missed: u32,
}

impl ScalerState {
    /// The version that this release writes and reads.
    pub const VERSION: u32 = 1;

    /// Where a scaler starts.
    #[must_use]
    pub fn new(config: &ScalerConfig) -> Self {
        Self {
            version: Self::VERSION,
            scale: config.init_scale,
            growth_tracker: 0,
            hysteresis_left: config.hysteresis,
            skipped: 0,
            consecutive_skipped: 0,
            updates: 0,
            stepped: 0,
            clipped: 0,
            above: 0,
            missed: 0,
        }
    }

    /// Clipped steps per step taken; 0 before the first.
    #[must_use]
    pub fn clip_rate(&self) -> f64 {
        if self.stepped == 0 { 0.0 } else { f64::from(self.clipped) / f64::from(self.stepped) }
    }

    /// Checks a state that came from outside.
    pub(crate) fn check(&self, config: &ScalerConfig) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::State { what });
        if self.version != Self::VERSION {
            return wrong(format!(
                "it has version {}, but this release reads version {}; convert it or start from a fresh scaler",
                self.version,
                Self::VERSION
            ));
        }
        if !(self.scale >= config.min_scale && self.scale <= config.max_scale) {
            return wrong(format!(
                "its scale {} is not between min_scale {} and max_scale {}",
                self.scale, config.min_scale, config.max_scale
            ));
        }
        let stays = match config.mode {
            ScaleMode::Dynamic => None,
            ScaleMode::Constant => Some("constant"),
            ScaleMode::Disabled => Some("disabled"),
        };
        if let Some(mode) = stays.filter(|_| self.scale != config.init_scale) {
            return wrong(format!(
                "its scale is {}, but this scaler is {mode} and stays at {}",
                self.scale, config.init_scale
            ));
        }
        if self.hysteresis_left > config.hysteresis {
            return wrong(format!(
                "its hysteresis_left {} is above hysteresis {}",
                self.hysteresis_left, config.hysteresis
            ));
        }
        if self.consecutive_skipped > self.skipped || self.skipped > self.updates {
            return wrong(format!(
                "its counts contradict each other: {} skipped in a row, {} skipped, {} updates",
                self.consecutive_skipped, self.skipped, self.updates
            ));
        }
        if self.clipped > self.stepped {
            return wrong(format!("it has {} clipped of {} steps", self.clipped, self.stepped));
        }
        Ok(())
    }

    pub(crate) fn to_gpu(self) -> GpuState {
        GpuState {
            scale: self.scale,
            growth_tracker: self.growth_tracker,
            hysteresis_left: self.hysteresis_left,
            skipped: self.skipped,
            consecutive_skipped: self.consecutive_skipped,
            updates: self.updates,
            stepped: self.stepped,
            clipped: self.clipped,
            above: self.above,
            missed: self.missed,
            ..bytemuck::Zeroable::zeroed()
        }
    }

    pub(crate) fn from_gpu(gpu: GpuState) -> Self {
        Self {
            version: Self::VERSION,
            scale: gpu.scale,
            growth_tracker: gpu.growth_tracker,
            hysteresis_left: gpu.hysteresis_left,
            skipped: gpu.skipped,
            consecutive_skipped: gpu.consecutive_skipped,
            updates: gpu.updates,
            stepped: gpu.stepped,
            clipped: gpu.clipped,
            above: gpu.above,
            missed: gpu.missed,
        }
    }
}

/// The twin of `struct ScalerState` in `scaler_state.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct GpuState {
    scale: f32,
    growth_tracker: u32,
    hysteresis_left: u32,
    skipped: u32,
    consecutive_skipped: u32,
    updates: u32,
    stepped: u32,
    clipped: u32,
    above: u32,
    missed: u32,
    found_inf: u32,
    overflow: u32,
    fresh: u32,
    reserved: [u32; 3],
}
