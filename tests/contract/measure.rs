//! Measuring decides nothing.

use gradclip::{Error, GradSet, Limit, Measure, NormType, ScalerConfig, Unscale};

use crate::support::{Rig, gpus, scaler, slice};

#[test]
fn any_number_of_times_beside_steps_on_one_encoder() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[24.0, -32.0]);
        let scaler = scaler(&gpu.context, ScalerConfig { init_scale: 8.0, ..ScalerConfig::default() });
        let step = scaler.begin(&rig.set).unwrap().unscale();
        let before = rig.set.read_verdict().unwrap();
        let mut measured = Vec::new();
        rig.run(|encoder| {
            for norm_type in [NormType::L2, NormType::L1, NormType::Linf] {
                let measure = Measure::norm().norm_type(norm_type).per_tensor();
                let unscale = Unscale::by(8.0);
                measured.push(rig.set.measure(encoder, unscale, measure).unwrap());
            }
        });
        assert_eq!(rig.set.read_verdict().unwrap(), before, "no verdict changes");
        rig.run(|encoder| {
            let step = step.limit(Limit::norm(1.0).eps(0.0)).record(encoder).unwrap();
            measured.push(rig.set.measure(encoder, 1.0, Measure::norm()).unwrap());
            scaler.update(encoder, [step]).unwrap();
            measured.push(rig.set.measure(encoder, 1.0, Measure::norm()).unwrap());
        });
        let results: Vec<_> = measured.into_iter().map(|one| one.read().unwrap()).collect();
        let norms: Vec<Option<f64>> = results.iter().map(|one| one.total_norm).collect();
        let after = norms[3].unwrap();
        assert_eq!(norms[..3], [Some(5.0), Some(7.0), Some(4.0)], "{}", gpu.info.name);
        assert!((after - 1.0).abs() < 1e-6 && norms[4] == norms[3], "{norms:?}");
        let tensors = results[1].tensor_norms.as_ref().unwrap();
        assert_eq!((tensors[0].name.as_str(), tensors[0].norm), ("weight", Some(7.0)));
        assert_eq!(results[3].tensor_norms, None);
        // One step was recorded and counted.
        let verdict = rig.set.read_verdict().unwrap();
        assert_eq!((verdict.run, verdict.taken), (1, 1));
        assert_eq!(scaler.state_dict().unwrap().updates, 1);
    }
}

/// w2: a warm-up and measurements are no steps of the optimizer; a limit of values and one of norms are one.
#[test]
fn w2_t_counts_optimizer_steps() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        rig.run(|encoder| {
            let _ = rig.set.measure(encoder, 1.0, Measure::norm()).unwrap();
            let clip = gradclip::ClipNorm::new(1.0).unwrap();
            rig.set.record(encoder, 1.0, Limit::value(3.5).then_norm(clip)).unwrap();
            let _ = rig.set.measure(encoder, 1.0, Measure::norm()).unwrap();
        });
        assert_eq!(rig.set.state().unwrap().steps, 1, "{}", gpu.info.name);
    }
}

#[cfg(feature = "serde")]
#[test]
fn what_is_not_finite_is_named_and_the_norm_is_null() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[f32::INFINITY, 4.0]);
        let mut measured = None;
        rig.run(|encoder| {
            measured = Some(rig.set.measure(encoder, 1.0, Measure::norm().per_tensor()).unwrap())
        });
        use gradclip::Measurement;
        let result = measured.unwrap().read().unwrap();
        assert_eq!((result.total_norm, result.nonfinite[0].name.as_str()), (None, "weight"));
        let json = serde_json::to_string(&result).unwrap();
        assert!(json.contains("\"total_norm\":null"), "{json}");
        assert_eq!(serde_json::from_str::<Measurement>(&json).unwrap(), result);
        // p09: the same in a step's report.
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::norm(1.0)).unwrap());
        let report = serde_json::to_value(rig.set.read_report().unwrap()).unwrap();
        assert_eq!(
            (&report["total_norm"], &report["coefficient"]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
    }
}

#[test]
fn what_was_not_prepared_or_submitted_says_so() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        let bare =
            GradSet::builder("bare").tensor("weight", slice(&rig.page, 0, 2)).build(&gpu.context).unwrap();
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        let refused = bare.measure(&mut encoder, 1.0, Measure::norm());
        assert!(matches!(refused, Err(Error::NotPrepared { what: "Measure", .. })));
        assert!(matches!(bare.record(&mut encoder, 1.0, Limit::value(1.0)), Err(Error::NotPrepared { .. })));
        let l1 = Limit::norm(1.0).norm_type(NormType::L1);
        assert!(matches!(bare.record(&mut encoder, 1.0, l1), Err(Error::NotPrepared { what: "L1", .. })));
        drop(encoder);
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        let dropped = rig.set.measure(&mut encoder, 1.0, Measure::norm()).unwrap();
        drop(encoder);
        assert!(matches!(dropped.read(), Err(Error::NotRun { .. })));
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        let held = rig.set.measure(&mut encoder, 1.0, Measure::norm()).unwrap();
        assert!(matches!(held.read(), Err(Error::NotRun { .. })));
        gpu.context.queue().submit([encoder.finish()]);
        crate::support::settle(&gpu.context);
    }
}

/// p10: the optimizer writes the parameters elsewhere.
#[test]
fn p10_delta_norm_between_two_buffers() {
    use crate::common::runner::upload;
    for gpu in gpus() {
        let before = upload(&gpu.context, &crate::common::f32s(&[1.0, 2.0]));
        let after = upload(&gpu.context, &crate::common::f32s(&[4.0, 6.0]));
        let pair = ("weight".to_string(), slice(&before, 0, 2), slice(&after, 0, 2));
        let delta = gradclip::DeltaNorm::between(&gpu.context, "adamw", [pair]).unwrap();
        crate::support::submit(&gpu.context, |encoder| {
            delta.record_before(encoder);
            delta.record_after(encoder).unwrap();
        });
        assert_eq!(delta.read_report().unwrap().total_norm, Some(5.0), "{}", gpu.info.name);
    }
}
