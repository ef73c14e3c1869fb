//! Steps skipped because their norm is above a threshold. For the scale they are finite.

use gradclip::{ScalerConfig, wgpu};

use crate::rig::{Optimizer, bits, clip, each, growing, scaler, take};
use crate::submission::PATIENCE;

fn threshold(norm: f32) -> ScalerConfig {
    ScalerConfig { skip_above: Some(norm), ..growing(2.0) }
}

#[test]
fn a_norm_above_the_threshold_skips_the_step_and_the_scale_stays() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[12.0, 16.0]);
        let scaler = scaler(gpu, threshold(9.0)).with_reports(1);
        take(gpu, &scaler, &[&adamw], clip(1.0)).unwrap();
        assert_eq!(adamw.bits(), bits(&[12.0, 16.0]));
        let verdict = adamw.verdict();
        assert_eq!((verdict.skip, verdict.above, verdict.found_inf, verdict.overflow), (1, 1, 0, 0));
        assert_eq!((verdict.apply, verdict.factor, verdict.norm().to_f64()), (0, 0.0, 10.0));

        let update = scaler.wait_report(PATIENCE).unwrap().unwrap();
        let step = &update.steps[0];
        assert!(step.ran && step.report.skipped && step.report.above && !step.report.found_inf);
        assert_eq!(
            (step.report.total_norm, step.report.coefficient, step.report.clipped),
            (Some(10.0), None, false)
        );
        assert_eq!(step.to_string(), "scale 2, norm 1.000000000e1, above the threshold, step skipped");
        let state = update.scaler;
        assert_eq!(
            (state.scale, state.updates, state.above, state.stepped, state.clipped),
            (2.0, 1, 1, 0, 0)
        );
        assert_eq!((state.skipped, state.consecutive_skipped, state.growth_tracker), (1, 1, 0));
    });
}

/// Only above: a norm equal to the threshold passes, the next f32 does not.
#[test]
fn the_threshold_itself_passes() {
    each(|gpu| {
        for (limit, above) in [(10.0, false), (10f32.next_down(), true), (f32::INFINITY, false)] {
            let adamw = Optimizer::new(gpu, "adamw", &[12.0, 16.0]);
            take(gpu, &scaler(gpu, threshold(limit)), &[&adamw], None).unwrap();
            assert_eq!(adamw.set.read_report().unwrap().above, above, "{limit}");
            let want = if above { [12.0, 16.0] } else { [6.0, 8.0] };
            assert_eq!(adamw.bits(), bits(&want));
        }
    });
}

/// Infinity comes first, and backs off; a norm above the threshold comes before overflow.
#[test]
fn found_inf_comes_before_the_threshold_and_the_threshold_before_overflow() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[f32::INFINITY, 16.0]);
        let scaler = scaler(gpu, ScalerConfig { init_scale: 0.5, ..threshold(9.0) });
        take(gpu, &scaler, &[&adamw], None).unwrap();
        let report = adamw.set.read_report().unwrap();
        assert_eq!((report.found_inf, report.above, report.overflow), (true, false, false));
        assert_eq!(scaler.state_dict().unwrap().scale, 0.25);

        adamw.fill(&[f32::MAX, 0.0]);
        take(gpu, &scaler, &[&adamw], None).unwrap();
        let report = adamw.set.read_report().unwrap();
        assert_eq!((report.found_inf, report.above, report.overflow), (false, true, false));
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.above, state.skipped, state.consecutive_skipped), (0.25, 1, 2, 2));
        assert_eq!(adamw.bits(), bits(&[f32::MAX, 0.0]));
    });
}

/// The threshold is each optimizer's own: one is skipped, the other steps.
#[test]
fn one_optimizer_above_the_threshold_does_not_hold_back_the_other() {
    each(|gpu| {
        let a = Optimizer::new(gpu, "a", &[12.0, 16.0]);
        let b = Optimizer::new(gpu, "b", &[6.0, 8.0]);
        let scaler = scaler(gpu, threshold(9.0));
        take(gpu, &scaler, &[&a, &b], None).unwrap();
        assert_eq!((a.bits(), b.bits()), (bits(&[12.0, 16.0]), bits(&[3.0, 4.0])));
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.above, state.stepped, state.skipped), (2.0, 1, 1, 1));
    });
}

/// The threshold works where the scale stands still, and in a deferred step.
#[test]
fn a_deferred_step_says_skip() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[12.0, 16.0]);
        let config = ScalerConfig { skip_above: Some(9.0), ..ScalerConfig::disabled() };
        let scaler = scaler(gpu, config);
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let step = scaler.begin(&adamw.set).unwrap().unscale().record_deferred(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
        gpu.queue().submit([encoder.finish()]);
        let verdict = adamw.verdict();
        assert_eq!((verdict.skip, verdict.above, verdict.factor), (1, 1, 0.0));
        assert_eq!(scaler.state_dict().unwrap().above, 1);
    });
}
