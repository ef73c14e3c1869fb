//! Steps of a scaler with the other norms and limits, and what its reports say of them.

use gradclip::{
    ClipNorm, ClipValue, Context, Error, GradScaler, LossScale, NormType, Recorded, ScalerConfig, Step,
    StepReport, Unscaled, wgpu,
};

use crate::common::cases::{Answer, Input};
use crate::common::gpus;
use crate::common::limit::Limit;
use crate::common::runner::{download, limited_on_reference};
use crate::random::check;
use crate::rig::{Optimizer, Tensor, bf16s, encoder, f16s, f32s, next, steady, submit};

fn norm(norm_type: NormType, max_norm: f32) -> ClipNorm {
    ClipNorm::new(max_norm).unwrap().with_norm_type(norm_type)
}

fn value(clip_value: f32) -> Limit {
    Limit::Value(ClipValue::new(clip_value).unwrap())
}

fn record(step: Step<Unscaled>, encoder: &mut wgpu::CommandEncoder, limit: Limit) -> Step<Recorded> {
    match limit {
        Limit::Norm(None) => step.record(encoder),
        Limit::Norm(Some(clip)) => step.limit(clip).record(encoder),
        Limit::EachTensor(clip) => step.limit(crate::common::limit::each_tensor(clip)).record(encoder),
        Limit::Value(clip) => step.limit(clip).record(encoder),
    }
    .unwrap()
}

/// A step that measures everything, and its update.
fn take(gpu: &Context, scaler: &GradScaler, optimizer: &Optimizer, limit: Limit) -> StepReport {
    let mut encoder = encoder(gpu);
    let step = scaler.begin(&optimizer.set).unwrap().unscale().measure_norm_after().measure_tensor_norms();
    let step = record(step, &mut encoder, limit);
    scaler.update(&mut encoder, [step]).unwrap();
    submit(gpu, encoder);
    next(scaler).steps.remove(0)
}

fn input(tensors: &[Tensor], scale: f32) -> Input {
    let tensors = tensors.iter().map(|(_, format, bytes)| (*format, bytes.clone())).collect();
    Input { name: "scaler".into(), scale: LossScale::new(scale).unwrap(), clip: None, tensors }
}

/// The norms of a report, as the reference has them: after the step, and of each tensor before it.
fn norms(input: &Input, after: &Answer, norm_type: NormType) -> (Option<f64>, Vec<Option<f64>>) {
    let measured = |scale, tensors| {
        let input = Input { scale, tensors, ..input.clone() };
        let answer = limited_on_reference(&input, Limit::EachTensor(norm(norm_type, f32::INFINITY)));
        (answer.norm, answer.each.into_iter().map(|each| each.norm.map(|n| n.to_f64())).collect())
    };
    let changed = input.tensors.iter().zip(&after.tensors).map(|(t, bytes)| (t.0, bytes.clone())).collect();
    let (norm_after, _) = measured(LossScale::ONE, changed);
    let (_, each) = measured(input.scale, input.tensors.clone());
    ((!after.found_inf).then_some(norm_after), each)
}

/// All formats, an empty tensor, and what f32 can barely hold.
fn tensors() -> Vec<Tensor> {
    let mixed = |seed: u32, len: u32| -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + seed) % 61) as f32 * 0.37 - 9.0).collect()
    };
    vec![
        f32s("f32", &mixed(1, 700)),
        f32s("empty", &[]),
        f16s("f16", &mixed(2, 303)),
        bf16s("bf16", &mixed(3, 77)),
        f32s("zeros", &[0.0, -0.0]),
        f32s("subnormal", &[1e-44, -3e-42, 1e-39]),
        f32s("huge", &[3e38, -3e38]),
    ]
}

fn limits() -> [(Limit, NormType); 7] {
    let [l1, l2, linf] = [NormType::L1, NormType::L2, NormType::Linf];
    [
        (Limit::Norm(Some(norm(l1, 700.0))), l1),
        (Limit::Norm(Some(norm(linf, 1e30))), linf),
        (Limit::EachTensor(norm(l1, 0.7)), l1),
        (Limit::EachTensor(norm(l2, 0.7)), l2),
        (Limit::EachTensor(norm(linf, 0.7)), linf),
        (value(0.25), l2),
        (value(f32::INFINITY), l2),
    ]
}

/// One set takes all kinds of steps in turn; what one leaves behind must not reach the next.
#[test]
fn steps_and_norms_equal_the_reference_on_every_bit() {
    let all = tensors();
    let mut bad = tensors();
    bad[2] = f16s("f16", &[1.0; 302].into_iter().chain([f32::NAN]).collect::<Vec<_>>());
    for gpu in gpus() {
        let gpu = &gpu.context;
        for scale in [8.0, 1000.0] {
            let scaler = GradScaler::new(gpu, ScalerConfig::constant(scale)).unwrap().with_reports(1);
            let mut optimizer = Optimizer::new(gpu, "adamw", &all, None);
            for (gradients, (limit, norm_type)) in
                limits().into_iter().flat_map(|limit| [(&all, limit), (&bad, limit)])
            {
                optimizer.rebind(gpu, gradients, 4);
                let step = take(gpu, &scaler, &optimizer, limit);
                let input = input(gradients, scale);
                let want = limited_on_reference(&input, limit);
                let report = step.report.clone();
                let got = Answer {
                    found_inf: report.found_inf,
                    overflow: report.overflow,
                    norm: report.total_norm.unwrap_or(0.0),
                    coefficient: report.coefficient.unwrap_or(0.0),
                    factor: report.factor.unwrap_or(0.0),
                    nonfinite: optimizer.gradients(gpu).iter().map(|t| report.nonfinite_in(t.0)).collect(),
                    tensors: optimizer.gradients(gpu).into_iter().map(|tensor| tensor.2).collect(),
                    each: limit.read_each(&optimizer.set).unwrap(),
                };
                check(&format!("{limit:?}"), &got, &want, &input);
                let (after, each) = norms(&input, &want, norm_type);
                assert_eq!(
                    (step.norm_after, crate::common::tensor_norms(&step)),
                    (after, Some(each)),
                    "{limit:?}"
                );
                let clipped = !want.found_inf && want.coefficient < 1.0;
                assert_eq!(report.clipped, clipped, "{limit:?}");
                assert_eq!(clipped, !want.found_inf && !matches!(limit, Limit::Value(_)), "{limit:?}");
            }
        }
    }
}

/// Clipped: a norm that was above its limit, or that of a tensor. By value: none.
#[test]
fn a_clip_rate_counts_norms() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let all = [f32s("a", &[24.0, -32.0]), f32s("b", &[8.0])];
        let (l1, l2) = (NormType::L1, NormType::L2);
        let scaler = steady(gpu, 1);
        let mut rates = Vec::new();
        for limit in [
            Limit::EachTensor(norm(l2, 4.0)),
            Limit::EachTensor(norm(l2, 5.0)),
            value(0.5),
            Limit::Norm(Some(norm(l1, 7.0))),
            Limit::Norm(Some(norm(l1, 8.0))),
        ] {
            let optimizer = Optimizer::new(gpu, "adamw", &all, None);
            let _ = take(gpu, &scaler, &optimizer, limit);
            let state = scaler.state_dict().unwrap();
            rates.push((state.clipped, state.stepped));
        }
        assert_eq!(rates, [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]);
        assert_eq!(scaler.state_dict().unwrap().clip_rate(), 0.4);
    }
}

/// The threshold is for the norm that the step measures of all tensors: here 7 in L1, 5 in L2, 4 in Linf.
#[test]
fn a_threshold_is_for_the_norm_that_is_measured() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let [l1, l2, linf] = [(NormType::L1, 7.0), (NormType::L2, 5.0), (NormType::Linf, 4.0)];
        let kinds = [l1, l2, linf].into_iter().flat_map(|(norm_type, measured)| {
            let clip = norm(norm_type, 1.0);
            [(Limit::Norm(Some(clip)), measured), (Limit::EachTensor(clip), measured)]
        });
        for (limit, measured) in kinds.chain([(value(1.0), 5.0)]) {
            for (threshold, above) in [(measured, false), (f32::next_down(measured), true)] {
                let config = ScalerConfig {
                    skip_above: Some(threshold),
                    growth_interval: 1,
                    ..ScalerConfig::default()
                };
                let scaler = GradScaler::new(gpu, ScalerConfig { init_scale: 8.0, ..config }).unwrap();
                let scaler = scaler.with_reports(1);
                let all = [f32s("a", &[24.0]), f32s("b", &[-32.0])];
                let optimizer = Optimizer::new(gpu, "adamw", &all, None);
                let step = take(gpu, &scaler, &optimizer, limit);
                let at = format!("{limit:?}, {threshold}");
                assert_eq!((step.report.above, step.report.skipped), (above, above), "{at}");
                assert_eq!(step.report.total_norm, Some(f64::from(measured)), "{at}");
                assert_eq!(step.norm_after.is_none(), above, "{at}");
                assert_eq!(crate::common::tensor_norms(&step), Some(vec![Some(3.0), Some(4.0)]), "{at}");
                assert_eq!(optimizer.gradients(gpu) == all, above, "{at}");
                let state = scaler.state_dict().unwrap();
                let counts = (state.scale, state.above, state.stepped, state.clipped, state.skipped);
                let clipped = u32::from(!matches!(limit, Limit::Value(_)));
                assert_eq!(counts, if above { (8.0, 1, 0, 0, 1) } else { (16.0, 0, 1, clipped, 0) }, "{at}");
                let each = limit.read_each(&optimizer.set).unwrap();
                assert!(each.iter().all(|each| (each.coefficient.significand == 0) == above), "{at}");
            }
        }
    }
}

/// Overflow in one tensor skips the step of all, counts none as taken and leaves the scale; NaN halves it.
#[test]
fn one_tensor_skips_the_step_of_all() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let config = ScalerConfig { init_scale: 0.5, ..ScalerConfig::default() };
        for limit in [Limit::EachTensor(norm(NormType::L2, 2e5)), value(f32::INFINITY)] {
            let scaler = GradScaler::new(gpu, config).unwrap().with_reports(1);
            let mut taken = Vec::new();
            let mut optimizer = Optimizer::new(gpu, "adamw", &[f32s("a", &[1.0]), f16s("b", &[2.0])], None);
            for gradient in [2.0, 65504.0, f32::NAN, 2.0] {
                let all = [f32s("a", &[1.0]), f16s("b", &[gradient])];
                optimizer.rebind(gpu, &all, 4);
                let step = take(gpu, &scaler, &optimizer, limit);
                assert_eq!(step.report.skipped, gradient != 2.0, "{limit:?} {gradient}");
                assert_eq!(optimizer.gradients(gpu) == all, gradient != 2.0, "{limit:?} {gradient}");
                let verdict = download(gpu, optimizer.set.verdict().buffer).unwrap();
                let verdict: gradclip::Verdict =
                    bytemuck::pod_read_unaligned(&verdict[..size_of::<gradclip::Verdict>()]);
                taken.push((verdict.taken, verdict.skip, scaler.state_dict().unwrap().scale));
            }
            assert_eq!(taken, [(1, 0, 0.5), (1, 1, 0.5), (1, 1, 0.25), (2, 0, 0.25)], "{limit:?}");
            let state = scaler.state_dict().unwrap();
            assert_eq!((state.skipped, state.stepped, state.clipped), (2, 2, 0), "{limit:?}");
        }
    }
}

/// Parameters of one step do not reach another in the same encoder.
#[test]
fn two_limits_in_one_encoder() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let all = [f32s("a", &[3.0, -4.0]), f32s("b", &[12.0, 0.25])];
        let limits = [
            Limit::EachTensor(norm(NormType::L2, 4.0)),
            value(2.5),
            Limit::Norm(Some(norm(NormType::Linf, 1.0))),
        ];
        let optimizer = Optimizer::new(gpu, "adamw", &all, None);
        let mut encoder = encoder(gpu);
        let mut input = input(&all, 1.0);
        for limit in limits {
            limit.record(&optimizer.set, &mut encoder, LossScale::ONE).unwrap();
            let after = limited_on_reference(&input, limit).tensors;
            input.tensors.iter_mut().zip(after).for_each(|(tensor, bytes)| tensor.1 = bytes);
        }
        submit(gpu, encoder);
        let got: Vec<Vec<u8>> = optimizer.gradients(gpu).into_iter().map(|tensor| tensor.2).collect();
        assert_eq!(got, input.tensors.into_iter().map(|tensor| tensor.1).collect::<Vec<_>>());
    }
}

/// A step that writes the norms of the tensors elsewhere leaves nothing to read of one before it.
#[test]
fn what_each_tensor_was_clipped_by_is_that_of_a_step_by_tensor() {
    let all = [f32s("a", &[3.0, -4.0]), f32s("b", &[12.0, 0.0])];
    let l2 = norm(NormType::L2, 6.0);
    for gpu in gpus() {
        let gpu = &gpu.context;
        let scaler = steady(gpu, 1);
        let mut optimizer = Optimizer::new(gpu, "adamw", &all, None);
        let mut run = |limit: Limit, measure: bool| {
            optimizer.rebind(gpu, &all, 4);
            if measure {
                let _ = take(gpu, &scaler, &optimizer, limit);
            } else {
                let mut encoder = encoder(gpu);
                limit.record(&optimizer.set, &mut encoder, LossScale::ONE).unwrap();
                submit(gpu, encoder);
            }
            optimizer
                .set
                .read_tensor_clips()
                .map(|clips| clips.iter().map(|c| c.coefficient.to_f64()).collect())
        };
        let none = |clips: Result<Vec<f64>, Error>| {
            let error = clips.unwrap_err();
            assert!(matches!(error, Error::NotRun { ref set } if set == "adamw"), "{error}");
        };
        let half = vec![1.0, 0.5];
        let limit = Limit::EachTensor(l2.with_eps(0.0).unwrap());
        none(run(Limit::Norm(None), false));
        none(run(Limit::Norm(None), true));
        assert_eq!(run(limit, false).unwrap(), half);
        assert_eq!(run(Limit::Norm(Some(l2)), false).unwrap(), half);
        none(run(Limit::Norm(Some(l2)), true));
        assert_eq!(run(limit, false).unwrap(), half);
        none(run(value(1.0), false));
        assert_eq!(run(limit, true).unwrap(), [1.0, 1.0]);
        // A step by value that never ran wrote nothing.
        let mut dropped = encoder(gpu);
        value(1.0).record(&optimizer.set, &mut dropped, LossScale::ONE).unwrap();
        drop(dropped);
        assert_eq!(optimizer.set.read_tensor_clips().unwrap().len(), 2);

        // One that never ran clipped nothing; of two, the last to run counts.
        let optimizer = Optimizer::new(gpu, "adamw", &all, None);
        let record = |limit: Limit| {
            let mut encoder = encoder(gpu);
            limit.record(&optimizer.set, &mut encoder, LossScale::ONE).unwrap();
            encoder
        };
        drop(record(limit));
        assert!(matches!(optimizer.set.read_tensor_clips(), Err(Error::NotRun { .. })));
        let (by_value, by_tensor) = (record(value(1.0)), record(limit));
        submit(gpu, by_tensor);
        submit(gpu, by_value);
        assert!(matches!(optimizer.set.read_tensor_clips(), Err(Error::NotRun { .. })));
    }
}
