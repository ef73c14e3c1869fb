//! Public reports of kind D: what a step with inf or NaN leaves behind.

use gradclip::ScalerConfig;

use crate::rig::{Optimizer, bits, each, encoder, scaler, submit, take};

/// pytorch#97415: the fused and the plain way left different gradients on a bad step. Here both leave every byte.
#[test]
fn d06_a_bad_step_leaves_the_same_bits_deferred_or_applied() {
    each(|gpu| {
        let applied = Optimizer::new(gpu, "applied", &[f32::INFINITY, 2.0]);
        let deferred = Optimizer::new(gpu, "deferred", &[f32::INFINITY, 2.0]);
        let scaler = scaler(gpu, ScalerConfig::constant(2.0));
        let mut encoder = encoder(gpu);
        let first = scaler.begin(&applied.set).unwrap().unscale().record(&mut encoder).unwrap();
        let second = scaler.begin(&deferred.set).unwrap().unscale().record_deferred(&mut encoder).unwrap();
        scaler.update(&mut encoder, [first, second]).unwrap();
        submit(gpu, encoder);
        for optimizer in [&applied, &deferred] {
            assert_eq!(optimizer.bits(), bits(&[f32::INFINITY, 2.0]));
            let verdict = optimizer.verdict();
            assert_eq!((verdict.skip, verdict.found_inf, verdict.apply, verdict.factor), (1, 1, 0, 0.0));
        }
    });
}

/// pytorch#142472: callers could not tell whether a step was taken, and a flag stayed set.
#[test]
fn d09_the_flag_is_cleared_between_steps() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[f32::INFINITY]);
        let scaler = scaler(gpu, ScalerConfig::constant(2.0));
        take(gpu, &scaler, &[&adamw], None).unwrap();
        let first = adamw.set.read_report().unwrap();
        assert!(first.found_inf && first.skipped);
        let bad = first.bad_tensors().next().unwrap();
        assert_eq!((bad.name.as_str(), bad.nonfinite.pos_inf, bad.nonfinite.first), ("weight", 1, Some(0)));

        adamw.fill(&[2.0]);
        take(gpu, &scaler, &[&adamw], None).unwrap();
        let second = adamw.set.read_report().unwrap();
        assert!(!second.found_inf && !second.skipped);
        assert_eq!(second.bad_tensors().count(), 0);
        assert_eq!(second.total_norm.unwrap().to_bits(), 1f64.to_bits());
        assert_eq!(adamw.bits(), bits(&[1.0]));
        assert_eq!((adamw.verdict().skip, adamw.verdict().found_inf), (0, 0));
    });
}
