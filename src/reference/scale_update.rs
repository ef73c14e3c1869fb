//! The CPU twin of `scale_update`: how the loss scale moves, in plain f64.

use crate::{HysteresisRefill, ScaleMode, ScalerConfig, ScalerState};

/// One update from all sets of a scaler. `found_inf`: some set held NaN or infinity. `left_out`: some set
/// skipped its step for another reason (a result that would not fit its format, a norm above the threshold); unless
/// `found_inf` too, that leaves scale and growth tracker alone, because a smaller scale would not help and a larger one was
/// not earned.
///
/// The scale is multiplied in f64 and rounded to f32, as PyTorch does.
pub fn scale_update(config: &ScalerConfig, state: &mut ScalerState, found_inf: bool, left_out: bool) {
    state.updates = state.updates.saturating_add(1);
    if found_inf || left_out {
        state.skipped = state.skipped.saturating_add(1);
        state.consecutive_skipped = state.consecutive_skipped.saturating_add(1);
    }
    let dynamic = config.mode == ScaleMode::Dynamic;
    if found_inf {
        state.growth_tracker = 0;
        state.hysteresis_left = state.hysteresis_left.saturating_sub(1);
        if state.hysteresis_left == 0 && dynamic {
            let backed_off = f64::from(state.scale) * config.backoff_factor;
            state.scale = (backed_off as f32).max(config.min_scale);
        }
    } else if !left_out {
        state.consecutive_skipped = 0;
        if config.refill == HysteresisRefill::OnFiniteStep {
            state.hysteresis_left = config.hysteresis;
        }
        state.growth_tracker = state.growth_tracker.saturating_add(1);
        if state.growth_tracker >= config.growth_interval {
            let grown = f64::from(state.scale) * config.growth_factor;
            if grown <= f64::from(config.max_scale) && dynamic {
                state.scale = grown as f32;
            }
            state.growth_tracker = 0;
            state.hysteresis_left = config.hysteresis;
        }
    }
}
