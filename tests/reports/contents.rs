//! What a report says, against the CPU reference.

use gradclip::{
    ClipNorm, Context, GradScaler, Nonfinite, ScalerConfig, ScalerState, StepReport, TensorNorm,
    TensorReport, UpdateReport, reference,
};

use crate::common::gpus;
use crate::rig::{
    Optimizer, Tensor, bf16s, clip, encoder, expected, f16s, f32s, named_norm, next, norm_of, steady, submit,
};

/// The numbers of a step that ran, on every bit.
fn check(step: &StepReport, tensors: &[Tensor], scale: f32, clip: Option<ClipNorm>) {
    let want = expected(tensors, scale, clip);
    let got = &step.report;
    assert!(step.ran);
    assert_eq!(got.scale.to_bits(), scale.to_bits());
    let numbers = [got.total_norm, got.coefficient, got.factor].map(|number| number.map(f64::to_bits));
    // Of what was not measured or not done there is no number.
    let measured = !want.found_inf || want.overflow;
    let wanted =
        [(measured, want.total_norm), (!want.skipped, want.coefficient), (!want.skipped, want.factor)]
            .map(|(there, number)| there.then(|| number.to_f64().to_bits()));
    assert_eq!(numbers, wanted, "{step:?}");
    assert_eq!((got.found_inf, got.overflow, got.above), (want.found_inf, want.overflow, false));
    assert_eq!(got.skipped, want.found_inf);
    let nonfinite = tensors.iter().zip(&want.nonfinite).filter(|(_, found)| found.first.is_some());
    let nonfinite: Vec<_> =
        nonfinite.map(|(tensor, &nonfinite)| TensorReport { name: tensor.0.into(), nonfinite }).collect();
    assert_eq!(got.nonfinite, nonfinite);
    assert_eq!(got.clipped, !want.found_inf && want.coefficient != gradclip::R24::ONE);
}

/// One step of each optimizer, all measured, in one update.
fn step_all(gpu: &Context, scaler: &GradScaler, all: &[(&Optimizer, Option<ClipNorm>, u32)]) -> UpdateReport {
    let mut encoder = encoder(gpu);
    let steps: Vec<_> = all
        .iter()
        .map(|(optimizer, clip, microbatches)| {
            let mut open = scaler.begin(&optimizer.set).unwrap();
            for _ in 0..*microbatches {
                open.microbatch();
            }
            let open = open.unscale().measure_norm_after().measure_tensor_norms();
            match clip {
                Some(clip) => open.limit(*clip).record(&mut encoder).unwrap(),
                None => open.record(&mut encoder).unwrap(),
            }
        })
        .collect();
    scaler.update(&mut encoder, steps).unwrap();
    submit(gpu, encoder);
    next(scaler)
}

#[test]
fn two_sets_of_one_update_keep_their_own_numbers() {
    let decay = [
        f32s("wte.weight", &[0.3, -7.0, 1e-3]),
        f16s("wpe.weight", &[0.7, 3.25, -100.0]),
        f32s("unused", &[]),
    ];
    let no_decay = [bf16s("ln.weight", &[2.0, -1.5]), f32s("ln.bias", &[1e30, -4e29])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let scaler = steady(gpu, 1);
        let first = Optimizer::new(gpu, "decay", &decay, None);
        let second = Optimizer::new(gpu, "no decay", &no_decay, None);
        let report = step_all(gpu, &scaler, &[(&first, Some(clip(1.0)), 2), (&second, None, 3)]);
        let [a, b] = report.steps.as_slice() else { panic!("{report:?}") };
        check(a, &decay, 8.0, Some(clip(1.0)));
        check(b, &no_decay, 8.0, None);
        assert_eq!((a.set.as_str(), a.microbatches, a.report.run), ("decay", 2, 1));
        assert_eq!((b.set.as_str(), b.microbatches, b.report.run), ("no decay", 3, 1));
        assert!(a.report.clipped && !b.report.clipped);
        assert_eq!(
            report.scaler,
            ScalerState {
                next_update: 1,
                sets: ["decay", "no decay"].map(|name| gradclip::SetState::new(name, 1)).into(),
                growth_tracker: 1,
                updates: 1,
                stepped: 2,
                clipped: 1,
                ..ScalerState::new(&ScalerConfig::constant(8.0))
            }
        );
        assert_eq!((report.update, report.clip_rate, report.lost), (0, 0.5, 0));
        for (step, optimizer, before) in [(a, &first, &decay[..]), (b, &second, &no_decay[..])] {
            let after = expected(&optimizer.gradients(gpu), 1.0, None).total_norm.to_f64();
            assert_eq!(step.norm_after, Some(after));
            let norms: Vec<TensorNorm> = before.iter().map(|t| named_norm(t, 8.0)).collect();
            assert_eq!(step.tensor_norms.as_ref(), Some(&norms));
        }
    }
}

#[test]
fn a_bad_set_names_its_tensors_and_its_sibling_steps() {
    let inf = f32::INFINITY;
    let bad = [
        f32s("good.weight", &[1.0, 2.0]),
        f32s("bad.weight", &[1.0, f32::NAN, -inf, inf, f32::NAN]),
        f16s("bad.bias", &[0.0, 0.0, -inf]),
        f32s("empty", &[]),
        bf16s("bad.scale", &[inf]),
    ];
    let good = [f32s("weight", &[24.0, 32.0])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let scaler = GradScaler::new(gpu, ScalerConfig { init_scale: 8.0, ..ScalerConfig::default() });
        let scaler = scaler.unwrap().with_reports(1);
        let (first, second) =
            (Optimizer::new(gpu, "bad", &bad, None), Optimizer::new(gpu, "good", &good, None));
        let report = step_all(gpu, &scaler, &[(&first, Some(clip(1.0)), 1), (&second, Some(clip(10.0)), 1)]);
        check(&report.steps[0], &bad, 8.0, Some(clip(1.0)));
        check(&report.steps[1], &good, 8.0, Some(clip(10.0)));

        let step = &report.steps[0];
        let named: Vec<(&str, Nonfinite)> =
            step.report.bad_tensors().map(|bad| (bad.name.as_str(), bad.nonfinite)).collect();
        let counts = |nan, pos_inf, neg_inf, first| Nonfinite { nan, pos_inf, neg_inf, first: Some(first) };
        let expected = [
            ("bad.weight", counts(2, 1, 1, 1)),
            ("bad.bias", counts(0, 0, 1, 2)),
            ("bad.scale", counts(0, 1, 0, 0)),
        ];
        assert_eq!(named, expected);
        assert_eq!(step.norm_after, None);
        let norms = [norm_of(&bad[0], 8.0), None, None, Some(0.0), None];
        let norms = bad.iter().zip(norms).map(|(t, norm)| TensorNorm { name: t.0.into(), norm });
        assert_eq!(step.tensor_norms, Some(norms.collect()));
        assert_eq!(report.steps[1].norm_after, Some(5.0));
        // The scale was the same for both, and falls once.
        assert_eq!((report.scaler.scale, report.scaler.skipped), (4.0, 1));
        assert_eq!((report.scaler.stepped, report.clip_rate), (1, 0.0));
    }
}

#[test]
fn overflow_is_told_apart_from_nonfinite_gradients() {
    let tensors = [f32s("weight", &[f32::MAX, 1.0])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let config = ScalerConfig { init_scale: 0.5, growth_interval: 100, ..ScalerConfig::default() };
        let scaler = GradScaler::new(gpu, config).unwrap().with_reports(1);
        let optimizer = Optimizer::new(gpu, "adamw", &tensors, None);
        let report = step_all(gpu, &scaler, &[(&optimizer, None, 0)]);
        let step = &report.steps[0];
        check(step, &tensors, 0.5, None);
        assert!(step.report.overflow && step.report.found_inf && step.report.skipped);
        assert!(step.report.total_norm.unwrap() > 6e38 && step.report.bad_tensors().next().is_none());
        assert_eq!((step.norm_after, step.microbatches), (None, 0));
        assert_eq!(step.tensor_norms, Some(vec![named_norm(&tensors[0], 0.5)]));
        assert_eq!((report.scaler.scale, report.scaler.skipped), (0.5, 1));
        assert_eq!(optimizer.gradients(gpu), tensors);
    }
}

#[test]
fn a_norm_above_the_threshold_is_told_apart_too() {
    let tensors = [f32s("weight", &[24.0, 32.0])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        // 5 is not above 5.
        for (skip_above, above) in [(5.0, false), (4.999, true)] {
            let config = ScalerConfig { skip_above: Some(skip_above), ..ScalerConfig::constant(8.0) };
            let scaler = GradScaler::new(gpu, config).unwrap().with_reports(1);
            let optimizer = Optimizer::new(gpu, "adamw", &tensors, None);
            let report = step_all(gpu, &scaler, &[(&optimizer, Some(clip(1.0)), 1)]);
            let step = &report.steps[0];
            let got = &step.report;
            assert_eq!((got.above, got.skipped, got.clipped), (above, above, !above));
            assert!(!got.found_inf && !got.overflow);
            assert_eq!(got.total_norm, Some(5.0));
            assert_eq!(step.norm_after.is_none(), above);
            assert_eq!(report.scaler.above, u32::from(above));
            assert_eq!(
                (report.scaler.skipped, report.scaler.growth_tracker),
                (u32::from(above), u32::from(!above))
            );
            assert_eq!(optimizer.gradients(gpu) == tensors, above);
        }
    }
}

/// The running counts, step by step, beside the CPU state machine.
#[test]
fn running_counts_follow_every_update() {
    let (inf, big) = (f32::INFINITY, 800.0);
    let gradients = [1.0, big, inf, inf, 8.0, inf, big, big, 0.0, f32::NAN, f32::NAN, f32::NAN, 2.0];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let config = ScalerConfig { init_scale: 8.0, growth_interval: 2, ..ScalerConfig::default() };
        let scaler = GradScaler::new(gpu, config).unwrap().with_reports(1);
        let optimizer = Optimizer::of_one(gpu, "adamw");
        let mut state = ScalerState::new(&config);
        for (i, gradient) in gradients.into_iter().enumerate() {
            optimizer.put(gpu, gradient);
            let limit = Some(clip(50.0));
            let want = expected(&[f32s("gradient", &[gradient])], state.scale, limit);
            let report = step_all(gpu, &scaler, &[(&optimizer, limit, 1)]);
            check(&report.steps[0], &[f32s("gradient", &[gradient])], state.scale, limit);
            reference::scale_update(&config, &mut state, want.found_inf, want.overflow);
            state.stepped += u32::from(!want.found_inf);
            state.clipped += u32::from(report.steps[0].report.clipped);
            let (next_update, steps) = (i as u64 + 1, state.stepped);
            assert_eq!(report.scaler.sets[0].steps, steps, "update {i}");
            let sets = report.scaler.sets.clone();
            assert_eq!(report.scaler, ScalerState { next_update, sets, ..state.clone() }, "update {i}");
            assert_eq!(report.clip_rate, f64::from(state.clipped) / f64::from(state.stepped.max(1)));
        }
        assert_eq!((state.skipped, state.consecutive_skipped, state.clipped), (6, 0, 3));
    }
}

/// The engine moves gradients to other buffers while a report is on its way.
#[test]
fn rebinding_leaves_earlier_reports_alone() {
    let before = [f32s("weight", &[24.0, 32.0]), f32s("bias", &[f32::NAN])];
    let moved = [f32s("weight", &[80.0, 0.0]), f32s("bias", &[8.0])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        // The same places in another buffer, and other places, which are planned anew.
        for gap in [4, 12] {
            let scaler = steady(gpu, 2);
            let mut optimizer = Optimizer::new(gpu, "adamw", &before, None);
            for (turn, tensors) in [&before, &moved].into_iter().enumerate() {
                let mut encoder = encoder(gpu);
                let open = scaler.begin(&optimizer.set).unwrap().unscale();
                let step = open.measure_norm_after().measure_tensor_norms().record(&mut encoder).unwrap();
                scaler.update(&mut encoder, [step]).unwrap();
                if turn == 0 {
                    optimizer.rebind(gpu, &moved, gap);
                }
                submit(gpu, encoder);
                assert_eq!(tensors.len(), 2);
            }
            let reports = [next(&scaler), next(&scaler)];
            check(&reports[0].steps[0], &before, 8.0, None);
            check(&reports[1].steps[0], &moved, 8.0, None);
            let step = &reports[0].steps[0];
            let norms = |weight, bias| {
                let norms = [("weight", weight), ("bias", bias)];
                Some(norms.map(|(name, norm)| TensorNorm { name: name.into(), norm }).to_vec())
            };
            assert_eq!((&step.tensor_norms, step.norm_after), (&norms(Some(5.0), None), None));
            let bad: Vec<&str> = step.report.bad_tensors().map(|t| t.name.as_str()).collect();
            assert_eq!(bad, ["bias"]);
            let step = &reports[1].steps[0];
            assert_eq!(step.tensor_norms, norms(Some(10.0), Some(1.0)));
            assert_eq!(step.norm_after, Some(expected(&moved, 8.0, None).total_norm.to_f64()));
        }
    }
}

/// The set may even be gone.
#[test]
fn a_report_outlives_its_set() {
    let gpu = &gpus()[0].context;
    let scaler = steady(gpu, 1);
    let tensors = [f32s("weight", &[f32::NAN])];
    let optimizer = Optimizer::new(gpu, "adamw", &tensors, None);
    submit(gpu, crate::rig::update(gpu, &scaler, &optimizer));
    drop(optimizer);
    let report = next(&scaler);
    let bad: Vec<&str> = report.steps[0].report.bad_tensors().map(|t| t.name.as_str()).collect();
    assert_eq!((report.steps[0].set.as_str(), bad), ("adamw", vec!["weight"]));
}
