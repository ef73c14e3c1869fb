//! The measurement that chooses how sets are cut: when it runs, how to turn it off, and that it changes no result.

mod common;

use gradclip::plan::PlanLimits;
use gradclip::{ClipNorm, Context, Format, GradSet, LossScale, TensorSlice, wgpu};

/// As many words as make a set worth it.
const WORDS: usize = 256 * 16_384;

fn set(gpu: &Context, buffer: &wgpu::Buffer, len: usize) -> GradSet {
    let slice = TensorSlice { buffer, offset: 0, len: len as u64, format: Format::F32 };
    GradSet::builder("set").tensor("gradient", slice).build(gpu).unwrap()
}

fn probed(gpu: &Context) -> bool {
    gpu.environment().probed.is_some()
}

#[test]
fn only_a_large_set_is_measured_for_and_only_once() {
    for gpu in common::gpus() {
        let device = gpu.context.device();
        let gpu = Context::new(device, gpu.context.queue()).unwrap();
        let buffer = common::runner::upload(&gpu, &vec![0; WORDS * 4]);
        let small = set(&gpu, &buffer, WORDS - 16_384);
        assert_eq!(small.plan().tile_words, PlanLimits::from_device(device).tile_words);
        assert!(!probed(&gpu));

        let large = set(&gpu, &buffer, WORDS);
        let [tile_words, windows] = gpu.environment().probed.expect("a measurement");
        assert_eq!(large.plan().tile_words, tile_words);
        let limits = gpu.plan_limits();
        assert_eq!((limits.tile_words, limits.windows_per_dispatch), (tile_words, windows));
        assert_eq!(gpu.clone().plan_limits(), limits);
        assert_eq!(gpu.plan_limits(), limits, "a second measurement would differ some day");
        let device = PlanLimits::from_device(device);
        assert!(limits.windows_per_dispatch <= device.windows_per_dispatch);
        let same =
            |l: PlanLimits| (l.window_bytes, l.window_align, l.groups_per_dimension, l.elements_per_dispatch);
        assert_eq!(same(limits), same(device));
    }
}

#[test]
fn without_it_the_limits_decide() {
    for gpu in common::gpus() {
        let device = gpu.context.device();
        let gpu = Context::new(device, gpu.context.queue()).unwrap().without_probe();
        let buffer = common::runner::upload(&gpu, &vec![0; WORDS * 4]);
        assert_eq!(set(&gpu, &buffer, WORDS).plan().tile_words, 16_384);
        assert_eq!(gpu.plan_limits(), PlanLimits::from_device(device));
        assert!(!probed(&gpu));
    }
}

#[test]
fn limits_of_the_callers_own_are_kept() {
    for gpu in common::gpus() {
        let gpu = Context::new(gpu.context.device(), gpu.context.queue()).unwrap();
        let buffer = common::runner::upload(&gpu, &vec![0; WORDS * 4]);
        let mut limits = PlanLimits::from_device(gpu.device());
        limits.tile_words = 4096;
        let slice = TensorSlice { buffer: &buffer, offset: 0, len: WORDS as u64, format: Format::F32 };
        let set = GradSet::builder("set").tensor("gradient", slice).plan_limits(limits).build(&gpu).unwrap();
        assert_eq!(set.plan().tile_words, 4096);
        assert!(!probed(&gpu));
    }
}

#[test]
fn it_changes_no_result_and_leaves_nothing_behind() {
    for adapter in common::adapters::named("all").unwrap() {
        // A device that no other test allocates on.
        let gpu = common::adapters::open(&adapter).unwrap();
        let device = gpu.context.device();
        let results = [true, false].map(|probe| {
            let gpu = Context::new(device, gpu.context.queue()).unwrap();
            let gpu = if probe { gpu } else { gpu.without_probe() };
            let before = device.generate_allocator_report().map(|report| report.total_allocated_bytes);
            _ = gpu.plan_limits();
            // What it let go is freed when the device next looks.
            device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
            let after = device.generate_allocator_report().map(|report| report.total_allocated_bytes);
            assert!(after <= before, "{before:?} bytes before, {after:?} after");
            let words: Vec<f32> = (0..WORDS).map(|i| ((i * 7919 % 1001) as f32 - 500.0) / 64.0).collect();
            let buffer = common::runner::upload(&gpu, &common::f32s(&words));
            let set = set(&gpu, &buffer, WORDS);
            let mut encoder = device.create_command_encoder(&Default::default());
            set.record(&mut encoder, LossScale::new(3.0).unwrap(), Some(ClipNorm::new(1.0).unwrap()))
                .unwrap();
            gpu.queue().submit([encoder.finish()]);
            let report = set.read_report().unwrap();
            (report.total_norm.unwrap().to_bits(), common::runner::download(&gpu, &buffer).unwrap())
        });
        assert!(results[0] == results[1], "the norm or the gradients differ");
        assert!(results[0].0 != 0);
    }
}
