//! Constant and disabled scaling, and the two ways to refill the hysteresis, update by update.

use gradclip::reference::scale_update;
use gradclip::{HysteresisRefill, ScaleMode, ScalerConfig, ScalerState};

use crate::rig::{Optimizer, after, bits, each, only_set, scaler};

/// Every update of a sequence of bad (true) and finite steps, against the reference.
fn follows_the_reference(config: ScalerConfig, bad_steps: &[bool]) {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[1.0]);
        let scaler = scaler(gpu, config);
        let mut want = ScalerState::new(&config);
        for (i, &bad) in bad_steps.iter().enumerate() {
            scale_update(&config, &mut want, bad, false);
            want.stepped += u32::from(!bad);
            want.sets = only_set("adamw", &want);
            let gradient = if bad { f32::NEG_INFINITY } else { 1.0 };
            assert_eq!(after(gpu, &scaler, &adamw, gradient), want, "update {i} of {config:?}");
        }
    });
}

const MIXED: [bool; 14] =
    [true, false, true, true, true, false, false, false, true, false, true, false, false, true];

#[test]
fn hysteresis_refilled_by_growth() {
    let config = ScalerConfig { hysteresis: 2, growth_interval: 3, ..ScalerConfig::default() };
    follows_the_reference(config, &MIXED);
}

#[test]
fn hysteresis_refilled_by_every_finite_step() {
    let refill = HysteresisRefill::OnFiniteStep;
    let config = ScalerConfig { hysteresis: 3, growth_interval: 3, refill, ..ScalerConfig::default() };
    follows_the_reference(config, &MIXED);
}

#[test]
fn a_constant_scale_stays_and_bad_steps_are_still_skipped() {
    let config = ScalerConfig { growth_interval: 1, ..ScalerConfig::constant(1000.0) };
    follows_the_reference(config, &MIXED);
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[1.0]);
        let scaler = scaler(gpu, config);
        let bad = after(gpu, &scaler, &adamw, f32::NAN);
        assert_eq!((bad.scale, bad.skipped, bad.consecutive_skipped), (1000.0, 1, 1));
        assert!(f32::from_bits(adamw.bits()[0]).is_nan());
        let good = after(gpu, &scaler, &adamw, 2000.0);
        assert_eq!((good.scale, good.skipped, good.consecutive_skipped, good.stepped), (1000.0, 1, 0, 1));
        // 2000 * R24(1 / 1000), rounded once.
        let mut want = 2000f32.to_le_bytes();
        let _ = crate::rig::on_reference(gradclip::Format::F32, &mut want, 1000.0, None);
        assert_eq!(adamw.bytes(), want);
    });
}

#[test]
fn disabled_scaling_writes_nothing_and_bad_steps_are_still_skipped() {
    follows_the_reference(ScalerConfig { growth_interval: 1, ..ScalerConfig::disabled() }, &MIXED);
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[0.1]);
        let scaler = scaler(gpu, ScalerConfig::disabled());
        assert_eq!(scaler.config().mode, ScaleMode::Disabled);
        assert_eq!(after(gpu, &scaler, &adamw, 0.1).scale, 1.0);
        assert_eq!(adamw.bits(), bits(&[0.1]));
        assert_eq!((adamw.verdict().apply, adamw.verdict().factor), (0, 1.0));
        let bad = after(gpu, &scaler, &adamw, f32::NAN);
        assert_eq!((bad.scale, bad.skipped), (1.0, 1));
        assert_eq!(adamw.verdict().skip, 1);
    });
}
