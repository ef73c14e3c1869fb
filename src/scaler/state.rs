//! The state of a scaler as a value: to save with a checkpoint, and to go on from bit for bit.

use crate::{Error, ScaleMode, ScalerConfig, SetState};

/// Everything that a [`GradScaler`](crate::GradScaler) remembers between steps.
///
/// With the `serde` feature it is what a checkpoint stores. [`TorchState`] reads what PyTorch stored. States of version 1
/// (0.1) are refused: they lack the steps of the sets.
#[derive(Debug, Clone, PartialEq)]
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
    /// Updates of which a step was skipped, for whatever reason, so far.
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
    /// Number of the next update in reports.
    pub next_update: u64,
    /// What each set remembers, by name.
    pub sets: Vec<SetState>,
}

/// What PyTorch's `GradScaler.state_dict()` holds, by its names (the last is `_growth_tracker` there).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TorchState {
    /// The loss scale.
    pub scale: f64,
    /// What the scale is multiplied by when it grows.
    pub growth_factor: f64,
    /// What the scale is multiplied by when it backs off.
    pub backoff_factor: f64,
    /// Finite steps in a row before the scale grows.
    pub growth_interval: u32,
    /// Finite steps since.
    #[cfg_attr(feature = "serde", serde(rename = "_growth_tracker"))]
    pub growth_tracker: u32,
}

impl TorchState {
    /// The configuration that it implies, with the defaults of what PyTorch does not have.
    #[must_use]
    pub fn config(&self) -> ScalerConfig {
        ScalerConfig {
            init_scale: self.scale as f32,
            growth_factor: self.growth_factor,
            backoff_factor: self.backoff_factor,
            growth_interval: self.growth_interval,
            ..ScalerConfig::default()
        }
    }

    /// The state to go on from with `config`. Counts that PyTorch does not keep start at 0; the steps that an optimizer has
    /// taken are in its own state: put them into `sets` ([`SetState::new`]).
    ///
    /// # Errors
    /// [`Error::State`] if its factors or interval are not those of `config`, or its scale is no f32.
    pub fn state(&self, config: &ScalerConfig) -> Result<ScalerState, Error> {
        let same = (self.growth_factor, self.backoff_factor, self.growth_interval)
            == (config.growth_factor, config.backoff_factor, config.growth_interval);
        if !same {
            return Err(Error::State {
                what: format!(
                    "PyTorch's has growth_factor {}, backoff_factor {} and growth_interval {}, which the configuration has \
                     not; TorchState::config makes one that has",
                    self.growth_factor, self.backoff_factor, self.growth_interval
                ),
            });
        }
        let scale = self.scale as f32;
        if f64::from(scale) != self.scale {
            return Err(Error::State { what: format!("its scale {} is no f32", self.scale) });
        }
        Ok(ScalerState { scale, growth_tracker: self.growth_tracker, ..ScalerState::new(config) })
    }
}

impl ScalerState {
    /// The version that this release writes and reads.
    pub const VERSION: u32 = 2;

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
            next_update: 0,
            sets: Vec::new(),
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
                "it has version {}, but this release reads version {}; version 1 (0.1) lacks next_update \
                 and the steps of the sets, which are for the caller to add",
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
        for (i, set) in self.sets.iter().enumerate() {
            if self.sets[..i].iter().any(|other| other.set == set.set) {
                return wrong(format!("it has two sets named \"{}\"", set.set));
            }
        }
        if self.clipped > self.stepped {
            return wrong(format!("it has {} clipped of {} steps", self.clipped, self.stepped));
        }
        Ok(())
    }

    pub(crate) fn to_gpu(&self) -> GpuState {
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
            next_update: 0,
            sets: Vec::new(),
        }
    }
}

/// The twin of `struct ScalerState` in `scaler_state.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct GpuState {
    scale: f32,
    /// 1: the scaler has halted.
    pub halted: u32,
    growth_tracker: u32,
    hysteresis_left: u32,
    skipped: u32,
    pub consecutive_skipped: u32,
    updates: u32,
    stepped: u32,
    clipped: u32,
    above: u32,
    missed: u32,
    found_inf: u32,
    left_out: u32,
    fresh: u32,
    reserved: [u32; 2],
}
