//! How a report reads: one line for a person, one JSON line for a training log.

use gradclip::{GradScaler, ScalerConfig, UpdateReport};

use crate::common::gpus;
use crate::rig::{Optimizer, clip, encoder, f16s, f32s, next, record, steady, submit};

/// Two optimizers in one update: one clipped and measured, one with the given gradient.
fn report_beside(gradient: f32) -> UpdateReport {
    let gpu = &gpus()[0].context;
    let config = ScalerConfig { init_scale: 8.0, ..ScalerConfig::default() };
    let scaler = GradScaler::new(gpu, config).unwrap().with_reports(1);
    let first = Optimizer::new(gpu, "decay", &[f32s("weight", &[24.0, 32.0]), f16s("bias", &[0.0])], None);
    let second = Optimizer::new(gpu, "no decay", &[f32s("ln", &[gradient, gradient])], None);
    let mut encoder = encoder(gpu);
    let mut open = scaler.begin(&first.set).unwrap();
    open.microbatch().microbatch();
    let open = open.unscale().measure_norm_after().measure_tensor_norms();
    let clip = clip(2.5).with_eps(0.0).unwrap();
    let steps = [open.limit(clip).record(&mut encoder).unwrap(), record(&scaler, &second, &mut encoder)];
    scaler.update(&mut encoder, steps).unwrap();
    submit(gpu, encoder);
    next(&scaler)
}

#[test]
fn display_is_one_readable_line() {
    assert_eq!(
        report_beside(8.0).to_string(),
        "update 0: decay: scale 8, norm 5.000000000e0, coefficient 5.000000000e-1, norm after 2.500000000e0; \
         no decay: scale 8, norm 1.414213538e0, coefficient 1.000000000e0; \
         next scale 8, 0 skipped (0 in a row), 50 % clipped"
    );
    assert_eq!(
        report_beside(f32::NEG_INFINITY).to_string(),
        "update 0: decay: scale 8, norm 5.000000000e0, coefficient 5.000000000e-1, norm after 2.500000000e0; \
         no decay: scale 8, found inf/NaN, step skipped: ln (0 NaN, 0 +inf, 2 -inf, first at 0); \
         next scale 4, 1 skipped (1 in a row), 100 % clipped"
    );
}

#[test]
fn display_of_other_skips() {
    let gpu = &gpus()[0].context;
    let config = ScalerConfig { skip_above: Some(1.0), ..ScalerConfig::constant(0.5) };
    let scaler = GradScaler::new(gpu, config).unwrap().with_reports(1);
    for (gradient, text) in [
        (
            8.0,
            "update 0: adamw: scale 0.5, norm 1.600000000e1, above the threshold, step skipped; \
             next scale 0.5, 1 skipped (1 in a row), 0 % clipped",
        ),
        (
            f32::MAX,
            "update 1: adamw: scale 0.5, norm 6.805646933e38, above the threshold, step skipped; \
             next scale 0.5, 2 skipped (2 in a row), 0 % clipped",
        ),
    ] {
        let optimizer = Optimizer::new(gpu, "adamw", &[f32s("weight", &[gradient])], None);
        submit(gpu, crate::rig::update(gpu, &scaler, &optimizer));
        assert_eq!(next(&scaler).to_string(), text);
    }
    let scaler = GradScaler::new(gpu, ScalerConfig::constant(0.5)).unwrap().with_reports(1);
    let optimizer = Optimizer::new(gpu, "adamw", &[f32s("weight", &[f32::MAX])], None);
    submit(gpu, crate::rig::update(gpu, &scaler, &optimizer));
    assert_eq!(
        next(&scaler).to_string(),
        "update 0: adamw: scale 0.5, norm 6.805646933e38, a result would overflow its format, step skipped; \
         next scale 0.5, 1 skipped (1 in a row), 0 % clipped"
    );
}

#[test]
fn display_of_a_step_that_never_ran() {
    let gpu = &gpus()[0].context;
    let (scaler, optimizer) = (steady(gpu, 1), Optimizer::of_one(gpu, "adamw"));
    let step = record(&scaler, &optimizer, &mut encoder(gpu));
    let mut submitted = encoder(gpu);
    scaler.update(&mut submitted, [step]).unwrap();
    submit(gpu, submitted);
    let text = "update 0: adamw: did not run on the GPU; next scale 8, 0 skipped (0 in a row), 0 % clipped";
    assert_eq!(next(&scaler).to_string(), text);
}

#[cfg(feature = "serde")]
#[test]
fn json_is_one_line_with_these_fields() {
    let report = report_beside(f32::NAN);
    let line = serde_json::to_string(&report).unwrap();
    assert!(!line.contains('\n'));
    let got: serde_json::Value = serde_json::from_str(&line).unwrap();
    let expected = serde_json::json!({
        "update": 0,
        "steps": [
            {
                "set": "decay",
                "ran": true,
                "microbatches": 2,
                "run": 1,
                "taken": 1,
                "scale": 8.0,
                "total_norm": 5.0,
                "coefficient": 0.5,
                "factor": 0.0625,
                "clipped": true,
                "skipped": false,
                "found_inf": false,
                "overflow": false,
                "above": false,
                "bad_scalar": false,
                "other": false,
                "halted": false,
                "lost": null,
                "nonfinite": [],
                "norm_after": 2.5,
                "tensor_norms": [{ "name": "weight", "norm": 5.0 }, { "name": "bias", "norm": 0.0 }],
            },
            {
                "set": "no decay",
                "ran": true,
                "microbatches": 0,
                "run": 1,
                "taken": 0,
                "scale": 8.0,
                "total_norm": null,
                "coefficient": null,
                "factor": null,
                "clipped": false,
                "skipped": true,
                "found_inf": true,
                "overflow": false,
                "above": false,
                "bad_scalar": false,
                "other": false,
                "halted": false,
                "lost": null,
                "nonfinite": [{ "name": "ln", "nan": 2, "pos_inf": 0, "neg_inf": 0, "first": 0 }],
                "norm_after": null,
                "tensor_norms": null,
            },
        ],
        "scaler": {
            "version": 2,
            "scale": 4.0,
            "growth_tracker": 0,
            "hysteresis_left": 0,
            "skipped": 1,
            "consecutive_skipped": 1,
            "updates": 1,
            "stepped": 1,
            "clipped": 1,
            "above": 0,
            "missed": 0,
            "next_update": 1,
            "sets": [
                {"set": "decay", "steps": 1, "consecutive_skipped": 0},
                {"set": "no decay", "steps": 0, "consecutive_skipped": 1},
            ]
        },
        "clip_rate": 1.0,
        "lost": 0,
    });
    assert_eq!(got, expected);
}
