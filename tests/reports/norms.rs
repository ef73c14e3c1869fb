//! Norms beside the step's own: after it, and of single tensors.

use gradclip::plan::PlanLimits;
use gradclip::{
    ClipNorm, Context, Format, GradScaler, GradSet, Prepare, ScalerConfig, StepReport, TensorNorm,
    TensorSlice, wgpu,
};

use crate::common::runner::upload;
use crate::common::{adapters, gpus};
use crate::rig::{
    Optimizer, Tensor, bf16s, clip, encoder, expected, f16s, f32s, named_norm, next, norm_of, steady, submit,
};

fn measure(gpu: &Context, scaler: &GradScaler, set: &GradSet, clip: Option<ClipNorm>) -> StepReport {
    set.prepare([Prepare::NormAfter, Prepare::TensorNorms]).unwrap();
    let mut encoder = encoder(gpu);
    let open = scaler.begin(set).unwrap().unscale().measure_norm_after().measure_tensor_norms();
    let step = match clip {
        Some(clip) => open.limit(clip).record(&mut encoder).unwrap(),
        None => open.record(&mut encoder).unwrap(),
    };
    scaler.update(&mut encoder, [step]).unwrap();
    submit(gpu, encoder);
    next(scaler).steps.remove(0)
}

/// Numbers without a pattern, over many binades.
fn mixed(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..len).map(|_| (random() as f32 / 8e6 - 1.0) * 2f32.powi((random() % 24) as i32 - 12)).collect()
}

/// Odd lengths, empty tensors, all formats.
fn tensors() -> Vec<Tensor> {
    vec![
        f32s("f32", &mixed(1, 5001)),
        f32s("empty", &[]),
        f16s("f16", &mixed(2, 1003)),
        f32s("one", &[-3.5]),
        bf16s("bf16", &mixed(3, 777)),
        f32s("zeros", &[0.0, -0.0]),
        f16s("f16 one", &[6e-8]),
        f32s("subnormal", &[1e-44, -3e-42, 1e-39]),
        f32s("huge", &[3e38, -3e38]),
    ]
}

fn norm(tensor: &str, norm: f64) -> TensorNorm {
    TensorNorm { name: tensor.into(), norm: Some(norm) }
}

fn check(gpu: &Context, optimizer: &Optimizer, step: &StepReport, before: &[Tensor], scale: f32) {
    let norms: Vec<TensorNorm> = before.iter().map(|t| named_norm(t, scale)).collect();
    assert_eq!(step.tensor_norms.as_ref(), Some(&norms));
    let after = expected(&optimizer.gradients(gpu), 1.0, None).total_norm.to_f64();
    assert_eq!(step.norm_after, Some(after));
}

#[test]
fn norms_equal_the_reference_on_every_bit() {
    let all = tensors();
    for gpu in gpus() {
        let gpu = &gpu.context;
        for scale in [1.0, 8.0, 1000.0] {
            let scaler = GradScaler::new(gpu, ScalerConfig::constant(scale)).unwrap().with_reports(1);
            let optimizer = Optimizer::new(gpu, "adamw", &all, None);
            let step = measure(gpu, &scaler, &optimizer.set, Some(clip(0.7)));
            check(gpu, &optimizer, &step, &all, scale);
        }
    }
}

/// Windows, tiles and dispatches as small as they get: a tensor's norm is that of all its pieces.
#[test]
fn norms_do_not_depend_on_the_cut() {
    let all = tensors();
    for gpu in gpus() {
        let gpu = &gpu.context;
        let mut limits = PlanLimits::from_device(gpu.device());
        limits.window_bytes = limits.window_align.max(256);
        limits.windows_per_dispatch = 2.min(limits.windows_per_dispatch);
        limits.groups_per_dimension = 3;
        limits.elements_per_dispatch = 2000;
        limits.tile_words = 7;
        let optimizer = Optimizer::new(gpu, "adamw", &all, Some(limits));
        let plan = optimizer.set.plan();
        let pieces = |tensor: usize| plan.segments.iter().filter(|s| s.tensor == tensor).count();
        assert!(pieces(0) > 20 && pieces(2) > 2 && pieces(4) > 2 && plan.dispatches.len() > 5);
        let scaler = steady(gpu, 1);
        let step = measure(gpu, &scaler, &optimizer.set, Some(clip(0.7)));
        check(gpu, &optimizer, &step, &all, 8.0);
    }
}

/// A long tensor at a multiple of 16 bytes is read in quads, and its last words one by one, after the quads of the next.
#[test]
fn a_norm_is_that_of_the_quads_and_the_rest() {
    let mut values = mixed(3, 16_387);
    values[16_386] = values.iter().fold(0.0, |most: f32, v| most.max(v.abs())) * 4.0;
    let all = [f32s("weight", &values), f32s("bias", &mixed(4, 64))];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let scaler = steady(gpu, 1);
        let words = measure(gpu, &scaler, &Optimizer::new(gpu, "adamw", &all, None).set, None);
        let pages = all.each_ref().map(|tensor| upload(gpu, &tensor.2));
        let mut builder = GradSet::builder("adamw");
        for ((name, _, bytes), page) in all.iter().zip(&pages) {
            let slice =
                TensorSlice { buffer: page, offset: 0, len: bytes.len() as u64 / 4, format: Format::F32 };
            builder = builder.tensor(*name, slice);
        }
        let set = builder.build(gpu).unwrap();
        assert_eq!(set.plan().segments.iter().map(|s| s.tensor).collect::<Vec<_>>(), [0, 1, 0]);
        let scaler = steady(gpu, 1);
        let quads = measure(gpu, &scaler, &set, None);
        assert_eq!(quads.tensor_norms, words.tensor_norms);
        assert_eq!(quads.report.total_norm, words.report.total_norm);
    }
}

#[test]
fn only_what_was_asked_for_is_measured() {
    let all = [f32s("weight", &[24.0, 32.0])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 1), Optimizer::new(gpu, "adamw", &all, None));
        for (after, tensors) in [(false, false), (true, false), (false, true), (true, true), (false, false)] {
            gpu.queue().write_buffer(&optimizer.page, 4, &all[0].2);
            let mut encoder = encoder(gpu);
            let mut open = scaler.begin(&optimizer.set).unwrap().unscale();
            if after {
                open = open.measure_norm_after();
            }
            if tensors {
                open = open.measure_tensor_norms();
            }
            let step = open.record(&mut encoder).unwrap();
            scaler.update(&mut encoder, [step]).unwrap();
            submit(gpu, encoder);
            let step = next(&scaler).steps.remove(0);
            assert_eq!(step.norm_after, after.then_some(5.0));
            assert_eq!(step.tensor_norms, tensors.then(|| vec![norm(all[0].0, 5.0)]));
        }
    }
}

/// Nothing is written in deferred mode, so there is no norm after; tensors have theirs.
#[test]
fn a_deferred_step_has_no_norm_after() {
    let all = [f32s("weight", &[24.0, 32.0])];
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 1), Optimizer::new(gpu, "adamw", &all, None));
        let mut encoder = encoder(gpu);
        let open =
            scaler.begin(&optimizer.set).unwrap().unscale().measure_norm_after().measure_tensor_norms();
        let step = open.limit(clip(1.0)).record_deferred(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
        submit(gpu, encoder);
        let step = next(&scaler).steps.remove(0);
        assert_eq!((step.norm_after, &step.tensor_norms), (None, &Some(vec![norm(all[0].0, 5.0)])));
        assert!(step.report.clipped);
        assert_eq!(optimizer.gradients(gpu), all);
    }
}

/// A set without tensors and a set of empty ones.
#[test]
fn norms_of_nothing() {
    let gpu = &gpus()[0].context;
    let scaler = steady(gpu, 1);
    for (tensors, norms) in [(vec![], vec![]), (vec![f32s("empty", &[])], vec![norm("empty", 0.0)])] {
        let optimizer = Optimizer::new(gpu, "adamw", &tensors, None);
        let step = measure(gpu, &scaler, &optimizer.set, None);
        assert!(step.ran);
        assert_eq!((step.report.total_norm, step.norm_after), (Some(0.0), Some(0.0)));
        assert_eq!(step.tensor_norms, Some(norms));
    }
}

/// More tensors than one dimension of a dispatch has workgroups: on a device with few, so that few tensors do.
#[test]
fn d05_more_tensors_than_a_dispatch_is_wide() {
    const WIDTH: u32 = 16;
    let values: Vec<f32> = (0..10 * WIDTH + 3).map(|i| i as f32 * 0.37 - 30.0).collect();
    for adapter in adapters::named("all").unwrap() {
        let limits = wgpu::Limits { max_compute_workgroups_per_dimension: WIDTH, ..adapter.limits() };
        let gpu = &adapters::open_with(&adapter, limits).unwrap().context;
        let page = upload(gpu, &crate::common::f32s(&values));
        let mut builder = GradSet::builder("adamw");
        for i in 0..values.len() {
            let slice = TensorSlice { buffer: &page, offset: 4 * i as u64, len: 1, format: Format::F32 };
            builder = builder.tensor(i.to_string(), slice);
        }
        let set = builder.build(gpu).unwrap();
        let step = measure(gpu, &steady(gpu, 1), &set, None);
        let norm =
            |(i, &v): (usize, &f32)| TensorNorm { name: i.to_string(), norm: norm_of(&f32s("", &[v]), 8.0) };
        let norms: Vec<TensorNorm> = values.iter().enumerate().map(norm).collect();
        assert_eq!(step.tensor_norms, Some(norms));
        let norm = expected(&[f32s("", &values)], 8.0, None).total_norm.to_f64();
        assert_eq!(step.report.total_norm, Some(norm));
    }
}
