//! How a loss scale grows and backs off.

use crate::Error;

/// What becomes of the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ScaleMode {
    /// Grows and backs off.
    #[default]
    Dynamic,
    /// Stays at `init_scale`; bad steps are still skipped and counted.
    Constant,
    /// Is 1 (bf16 and f32 training); bad steps are still skipped and counted.
    Disabled,
}

/// What gives a scaler its patience back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum HysteresisRefill {
    /// Growth does (Megatron's rule).
    #[default]
    OnGrowth,
    /// Every finite step does (Apex's rule).
    OnFiniteStep,
}

/// What becomes of the other optimizers of a scaler when one skips its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum SkipRule {
    /// Each skips by itself (PyTorch's rule).
    #[default]
    Each,
    /// All are skipped if one is (Megatron's and DeepSpeed's rule): record them together, by
    /// [`GradScaler::record_all`](crate::GradScaler::record_all).
    All,
}

/// Configuration of a [`GradScaler`](crate::GradScaler), with PyTorch's names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalerConfig {
    /// The first scale. 65536.
    pub init_scale: f32,
    /// What the scale is multiplied by after `growth_interval` finite steps in a row. f64, as in PyTorch. 2.
    pub growth_factor: f64,
    /// What the scale is multiplied by after a step with inf or NaN. 0.5.
    pub backoff_factor: f64,
    /// Finite steps in a row before the scale grows. 2000.
    pub growth_interval: u32,
    /// The scale does not fall below this; at least the smallest normal f32, 2^-126, which is the default.
    pub min_scale: f32,
    /// The scale does not grow beyond this. 2^127, the largest power of two.
    pub max_scale: f32,
    /// Bad steps before the scale backs off: with 2 the first is forgiven. 1.
    pub hysteresis: u32,
    /// What refills the hysteresis.
    pub refill: HysteresisRefill,
    /// After so many steps of a set were skipped in a row, for whatever reason, the scaler halts on the GPU: every verdict
    /// says skip, and nothing moves. [`GradScaler::begin`](crate::GradScaler::begin) refuses as soon as the host has heard of
    /// it, without reports, until [`GradScaler::resume`](crate::GradScaler::resume). `None`: never.
    pub max_consecutive_skipped: Option<u32>,
    /// A step with a norm above this is skipped, unless its limit has a threshold of its own
    /// ([`Limit::skip_above`](crate::Limit::skip_above)). The scale and its growth stay as they are. `None`: never.
    pub skip_above: Option<f32>,
    /// What becomes of the other optimizers when one skips its step.
    pub skip: SkipRule,
    /// Whether the scale moves at all.
    pub mode: ScaleMode,
}

impl Default for ScalerConfig {
    fn default() -> Self {
        Self {
            init_scale: 65536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            min_scale: f32::MIN_POSITIVE,
            max_scale: f32::from_bits(0x7f00_0000),
            hysteresis: 1,
            refill: HysteresisRefill::OnGrowth,
            max_consecutive_skipped: None,
            skip_above: None,
            skip: SkipRule::Each,
            mode: ScaleMode::Dynamic,
        }
    }
}

impl ScalerConfig {
    /// A scale that never moves.
    #[must_use]
    pub fn constant(scale: f32) -> Self {
        Self { init_scale: scale, mode: ScaleMode::Constant, ..Self::default() }
    }

    /// No loss scaling, for bf16 and f32 training: the scale is 1, and steps with inf or NaN are still skipped.
    #[must_use]
    pub fn disabled() -> Self {
        Self { init_scale: 1.0, mode: ScaleMode::Disabled, ..Self::default() }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Config`] that names the first field outside its domain.
    pub fn check(&self) -> Result<(), Error> {
        let finite = |x: f64| x.is_finite();
        let fail = |field, value: f64, must| Err(Error::Config { field, value: value.to_string(), must });
        if !(finite(self.growth_factor) && self.growth_factor > 1.0) {
            return fail("growth_factor", self.growth_factor, "be above 1 and finite");
        }
        // NaN is in no range.
        if !(self.backoff_factor > 0.0 && self.backoff_factor < 1.0) {
            return fail("backoff_factor", self.backoff_factor, "lie between 0 and 1, both excluded");
        }
        if self.backoff_factor < f64::MIN_POSITIVE {
            return fail("backoff_factor", self.backoff_factor, "be a normal f64");
        }
        if self.growth_interval == 0 {
            return fail("growth_interval", 0.0, "be at least 1");
        }
        if self.hysteresis == 0 {
            return fail("hysteresis", 0.0, "be at least 1: the first bad step backs off");
        }
        let (min, max) = (f64::from(self.min_scale), f64::from(self.max_scale));
        if !(self.min_scale >= f32::MIN_POSITIVE && finite(min)) {
            return fail("min_scale", min, "be at least 2^-126 and finite");
        }
        if !(max >= min && finite(max)) {
            return fail("max_scale", max, "be at least min_scale and finite");
        }
        if !(self.init_scale >= self.min_scale && self.init_scale <= self.max_scale) {
            return fail("init_scale", self.init_scale.into(), "lie between min_scale and max_scale");
        }
        if self.mode == ScaleMode::Disabled && self.init_scale != 1.0 {
            return fail(
                "init_scale",
                self.init_scale.into(),
                "be 1 where scaling is disabled; ScalerConfig::disabled() sets it",
            );
        }
        if self.max_consecutive_skipped == Some(0) {
            return fail("max_consecutive_skipped", 0.0, "be at least 1, or None for no limit");
        }
        match self.skip_above {
            Some(norm) if norm.is_nan() || norm <= 0.0 => {
                fail("skip_above", norm.into(), "be above 0, or None to skip no step for its norm")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_pytorch_and_pass() {
        let config = ScalerConfig::default();
        assert_eq!((config.init_scale, config.growth_factor, config.backoff_factor), (65536.0, 2.0, 0.5));
        assert_eq!((config.growth_interval, config.hysteresis), (2000, 1));
        assert_eq!(config.max_scale, 2f32.powi(127));
        for good in [config, ScalerConfig::constant(1024.0), ScalerConfig::disabled()] {
            assert_eq!(good.check(), Ok(()));
        }
    }

    #[test]
    fn every_domain_error_names_its_field() {
        let good = ScalerConfig::default();
        let bad = [
            ("growth_factor", ScalerConfig { growth_factor: 1.0, ..good }),
            ("growth_factor", ScalerConfig { growth_factor: f64::NAN, ..good }),
            ("growth_factor", ScalerConfig { growth_factor: f64::INFINITY, ..good }),
            ("backoff_factor", ScalerConfig { backoff_factor: 1.0, ..good }),
            ("backoff_factor", ScalerConfig { backoff_factor: 0.0, ..good }),
            ("backoff_factor", ScalerConfig { backoff_factor: -0.5, ..good }),
            ("backoff_factor", ScalerConfig { backoff_factor: f64::NAN, ..good }),
            ("backoff_factor", ScalerConfig { backoff_factor: 5e-324, ..good }),
            ("growth_interval", ScalerConfig { growth_interval: 0, ..good }),
            ("hysteresis", ScalerConfig { hysteresis: 0, ..good }),
            ("min_scale", ScalerConfig { min_scale: 0.0, ..good }),
            ("min_scale", ScalerConfig { min_scale: f32::NAN, ..good }),
            ("max_scale", ScalerConfig { max_scale: f32::INFINITY, ..good }),
            ("max_scale", ScalerConfig { min_scale: 4.0, max_scale: 2.0, ..good }),
            ("init_scale", ScalerConfig { init_scale: 0.0, ..good }),
            ("init_scale", ScalerConfig { init_scale: -1.0, ..good }),
            ("init_scale", ScalerConfig { init_scale: f32::INFINITY, ..good }),
            ("init_scale", ScalerConfig { init_scale: f32::NAN, ..good }),
            ("init_scale", ScalerConfig { init_scale: f32::from_bits(1), ..good }),
            ("init_scale", ScalerConfig { init_scale: 2.0, ..ScalerConfig::disabled() }),
            ("max_consecutive_skipped", ScalerConfig { max_consecutive_skipped: Some(0), ..good }),
            ("skip_above", ScalerConfig { skip_above: Some(0.0), ..good }),
            ("skip_above", ScalerConfig { skip_above: Some(f32::NAN), ..good }),
        ];
        for (field, config) in bad {
            let error = config.check().unwrap_err();
            assert!(matches!(&error, Error::Config { field: f, .. } if *f == field), "{field}: {error}");
            assert!(error.to_string().contains(field), "{error}");
        }
    }
}
