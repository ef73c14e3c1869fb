//! Kind H: index widths, workgroup counts and binding sizes that a driver here can hold.

use gradclip::plan::{OWN_STORAGE_BUFFERS, PlanLimits};
use gradclip::{Format, GradSet, LossScale};

use crate::common::cases::Input;
use crate::common::{Gpu, adapters, runner};
use crate::support::{
    bytes, clip, each_gpu, each_small_gpu, f32_bits, f32_set, f32s, reads, run, upload, whole,
};

/// Clips `len` ones and compares every element; returns the plan's windows and dispatches.
fn clip_ones(
    gpu: &Gpu,
    len: usize,
    max_norm: f32,
    norm: u32,
    result: u32,
    limits: PlanLimits,
) -> (usize, usize) {
    let buffers = upload(gpu, &[f32s(&vec![1.0; len])]);
    let set = GradSet::builder("ones")
        .tensor("ones", whole(&buffers[0], Format::F32))
        .plan_limits(limits)
        .build(&gpu.context)
        .unwrap();
    let report = run(gpu, &set, LossScale::ONE, clip(max_norm));
    let at = adapters::label(&gpu.info);
    assert_eq!(report.total_norm, Some(f64::from(f32::from_bits(norm))), "{at}");
    let after = bytes(gpu, &buffers[0]);
    let wrong = after.chunks_exact(4).position(|word| word != result.to_le_bytes());
    assert_eq!((after.len(), wrong), (4 * len, None), "{at}");
    (set.plan().windows.len(), set.plan().dispatches.len())
}

/// The same on the reference.
fn reference_ones(len: usize, max_norm: f32, norm: u32, result: u32) {
    let input = Input {
        name: "ones".into(),
        scale: LossScale::ONE,
        clip: clip(max_norm),
        tensors: vec![f32s(&vec![1.0; len])],
    };
    let want = runner::on_reference(&input);
    assert_eq!(want.norm, f64::from(f32::from_bits(norm)));
    assert!(want.tensors[0].chunks_exact(4).all(|word| word == result.to_le_bytes()));
}

/// As many elements as in the report, over both dimensions and over several dispatches.
#[test]
fn h03_more_elements_than_one_dimension_of_workgroups_covers() {
    const LEN: usize = 16_776_961;
    let (norm, result) = (0x457f_ff80, 0x3f00_0040);
    reference_ones(LEN, 2048.0, norm, result);
    reads(f64::from(f32::from_bits(norm)), "4095.96887");
    each_gpu(|gpu| {
        let mut limits = PlanLimits::from_device(gpu.context.device());
        (limits.tile_words, limits.groups_per_dimension) = (4096, 50);
        let (windows, dispatches) = clip_ones(gpu, LEN, 2048.0, norm, result, limits);
        // The last element is no quad, and has a dispatch to itself.
        assert_eq!(LEN % 4, 1);
        assert_eq!((windows, dispatches), (1, (LEN - 1).div_ceil(4096).div_ceil(50 * 50) + 1));
    });
}

/// A device that was given 20 workgroups a dimension: wgpu refuses 21 there as it refuses 65536 elsewhere,
/// and a software driver is done with them sooner.
#[test]
fn h03_more_workgroups_than_one_dimension_holds() {
    each_small_gpu(|gpu| {
        assert_eq!(gpu.context.device().limits().max_compute_workgroups_per_dimension, 20);
        let buffers = upload(gpu, &[f32s(&[1.0; 5000])]);
        let mut limits = PlanLimits::from_device(gpu.context.device());
        limits.tile_words = 10;
        let builder = GradSet::builder("ones").tensor("ones", whole(&buffers[0], Format::F32));
        let set = builder.plan_limits(limits).build(&gpu.context).unwrap();
        let groups: Vec<_> = set.plan().dispatches.iter().map(|d| d.groups).collect();
        assert_eq!(groups, [(20, 20), (20, 5)]);
        let report = run(gpu, &set, LossScale::ONE, clip(1.0));
        assert_eq!(report.total_norm, Some(f64::from(5000f32.sqrt())), "{}", adapters::label(&gpu.info));
        let clipped = (1.0 / 5000f32.sqrt()).to_bits();
        assert!(bytes(gpu, &buffers[0]) == f32_bits(&[clipped; 5000]).1, "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn h05_the_largest_binding_and_one_element_more() {
    const LEN: usize = 1 << 25;
    let (norm, result) = (0x45b5_04f3, 0x3935_04f3);
    reference_ones(LEN, 1.0, norm, result);
    reference_ones(LEN + 1, 1.0, norm, result);
    reads(f64::from(f32::from_bits(norm)), "5792.61875");
    reads(f64::from(f32::from_bits(norm)), "5792.61884");
    each_gpu(|gpu| {
        let mut limits = PlanLimits::from_device(gpu.context.device());
        // Some drivers bind more than the 128 MiB of the report.
        limits.window_bytes = 1 << 27;
        assert_eq!(clip_ones(gpu, LEN, 1.0, norm, result, limits).0, 1);
        assert_eq!(clip_ones(gpu, LEN + 1, 1.0, norm, result, limits).0, 2);
    });
}

/// 100000 bytes are no multiple of 256: windows that long would leave the second one misaligned.
#[test]
fn h06_windows_start_aligned() {
    reference_ones(40_000, 100.0, 0x4348_0000, 0x3f00_0000);
    each_small_gpu(|gpu| {
        let device = gpu.context.device().limits();
        assert_eq!(device.max_storage_buffer_binding_size, 100_000);
        let buffers = upload(gpu, &[f32s(&vec![1.0; 40_000])]);
        let set = f32_set(gpu, &buffers);
        let windows: Vec<_> = set.plan().windows.iter().map(|w| (w.offset, w.size)).collect();
        assert_eq!(windows, [(0, 99_840), (99_840, 60_160)]);
        let most = device.max_storage_buffers_per_shader_stage - 1;
        assert!(set.plan().dispatches.iter().all(|d| d.windows.len() as u32 + OWN_STORAGE_BUFFERS <= most));
        let report = run(gpu, &set, LossScale::ONE, clip(100.0));
        assert_eq!(report.total_norm, Some(200.0), "{}", adapters::label(&gpu.info));
        let half = f32_bits(&[0x3f00_0000; 40_000]).1;
        assert!(bytes(gpu, &buffers[0]) == half, "{}", adapters::label(&gpu.info));
    });
}
