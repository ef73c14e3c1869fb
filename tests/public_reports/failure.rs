//! Kind N: work that never ran, empty dispatches, and refused memory.

use gradclip::plan::PlanLimits;
use gradclip::{Error, Format, GradSet, LossScale, TensorSlice, Verdict};

use crate::common::{Gpu, adapters};
use crate::support::{
    bytes, clip, each_gpu, each_small_gpu, encoder, f32_set, f32s, run, submit, upload, whole,
};

/// The verdict as the engine's kernels see it.
fn verdict(gpu: &Gpu, set: &GradSet) -> Verdict {
    let binding = set.verdict();
    let all = bytes(gpu, binding.buffer);
    bytemuck::pod_read_unaligned(&all[binding.offset as usize..][..size_of::<Verdict>()])
}

fn not_run() -> Error {
    Error::NotRun { set: "set".into() }
}

#[test]
fn n01_a_step_that_never_ran_is_an_error_and_not_norm_0() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        assert_eq!(set.read_report().err(), Some(not_run()), "nothing recorded, {at}");
        let before = verdict(gpu, &set);
        assert_eq!((before.found_inf, before.apply, before.run), (1, 0, 0), "a kernel has to skip, {at}");

        let mut dropped = encoder(&gpu.context);
        set.record(&mut dropped, LossScale::ONE, clip(1.0)).unwrap();
        assert_eq!(set.read_report().err(), Some(not_run()), "recorded, {at}");
        drop(dropped);
        assert_eq!(set.read_report().err(), Some(not_run()), "dropped, {at}");
        assert_eq!(verdict(gpu, &set), before);
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[3.0, 4.0]).1, "{at}");

        assert_eq!(run(gpu, &set, LossScale::ONE, clip(1.0)).total_norm, Some(5.0));
        let after = verdict(gpu, &set);
        assert_eq!((after.found_inf, after.apply, after.run), (0, 0, 1), "{at}");
        assert_eq!(
            (after.factor, after.step_factor().to_f64()),
            (1.0, f64::from(f32::from_bits(0x3e4c_cccd)))
        );
    });
}

/// The same after a step that did run: its report is not taken for that of the next.
#[test]
fn n01_a_report_is_not_taken_for_that_of_a_later_step() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        let report = run(gpu, &set, LossScale::ONE, None);
        assert_eq!(set.read_report().as_ref(), Ok(&report), "reading twice is fine, {at}");
        let mut dropped = encoder(&gpu.context);
        set.record(&mut dropped, LossScale::ONE, None).unwrap();
        drop(dropped);
        // It is that of the latest step that ran, and says which.
        assert_eq!((report.run, set.read_report()), (1, Ok(report)), "{at}");
        assert_eq!(run(gpu, &set, LossScale::ONE, None).run, 2, "{at}");
    });
}

/// A step recorded while the report of the one before is under way.
#[test]
fn n01_a_step_recorded_during_a_read_does_not_count_as_seen() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        submit(gpu, &set, LossScale::ONE, None);
        let report = set.read_report_async();
        let mut dropped = encoder(&gpu.context);
        set.record(&mut dropped, LossScale::ONE, None).unwrap();
        drop(dropped);
        gpu.context.device().poll(gradclip::wgpu::PollType::wait_indefinitely()).unwrap();
        assert_eq!(pollster::block_on(report).unwrap().run, 1);
        assert_eq!(set.read_report().unwrap().run, 1, "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn n03_no_dispatch_is_empty() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[5.0]), f32s(&[0.0]), f32s(&[0.0])]);
        for lens in [[0, 0, 0], [1, 0, 0], [0, 0, 1]] {
            let mut builder = GradSet::builder("set");
            for (i, (buffer, len)) in buffers.iter().zip(lens).enumerate() {
                builder = builder.tensor(i.to_string(), TensorSlice { len, ..whole(buffer, Format::F32) });
            }
            let set = builder.build(&gpu.context).unwrap();
            for dispatch in &set.plan().dispatches {
                assert!(dispatch.groups.0 > 0 && dispatch.groups.1 > 0 && dispatch.tiles > 0, "{dispatch:?}");
            }
            assert_eq!(set.plan().dispatches.len() as u64, lens.iter().sum::<u64>());
            let report = run(gpu, &set, LossScale::ONE, None);
            let norm = if lens[0] == 1 { 5.0 } else { 0.0 };
            assert_eq!(
                (report.found_inf, report.total_norm),
                (false, Some(norm)),
                "{}",
                adapters::label(&gpu.info)
            );
        }
    });
}

/// Partials of one-word tiles that the device has no room for; then a small step on the same device.
#[test]
fn n06_a_refused_allocation_breaks_nothing() {
    each_small_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let buffers = upload(gpu, &[f32s(&vec![1.0; 40_000]), f32s(&[3.0, 4.0])]);
        let mut limits = PlanLimits::from_device(gpu.context.device());
        limits.tile_words = 1;
        let large =
            GradSet::builder("large").plan_limits(limits).tensor("g", whole(&buffers[0], Format::F32));
        let refused = large.build(&gpu.context).err();
        let want = Error::Scratch {
            set: "large".into(),
            what: "partials",
            bytes: 40 * 40_000,
            limit: gpu.context.device().limits().max_storage_buffer_binding_size,
        };
        assert_eq!(refused, Some(want), "{at}");
        assert!(bytes(gpu, &buffers[0]) == f32s(&vec![1.0; 40_000]).1, "{at}");
        let set = f32_set(gpu, &buffers[1..]);
        assert_eq!(run(gpu, &set, LossScale::ONE, clip(1.0)).total_norm, Some(5.0), "{at}");
        assert_eq!(bytes(gpu, &buffers[1]), f32s(&[0.6, 0.8]).1, "{at}");
    });
}
