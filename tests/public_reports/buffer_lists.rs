//! Kind G: empty, mixed, repeated and grouped tensors.

use gradclip::{Error, Format, GradSet, LossScale, Nonfinite, TensorReport, TensorSlice};

use crate::common::adapters;
use crate::support::{
    bf16_bits, bf16s, bytes, clip, each_gpu, encoder, f16_bits, f16s, f32_bits, f32_set, f32s, reads, run,
    scale, step, submit, upload, whole,
};

/// Two words a tile, as in the report, and one bad element in the last tensor: its counts have to arrive in
/// its own place behind the empty ones.
#[test]
fn g01_empty_tensors_shift_nothing() {
    let ones = |lens: &[usize]| lens.iter().map(|&len| f32s(&vec![1.0; len])).collect::<Vec<_>>();
    let lens = [5, 3, 0, 0, 7];
    let answer = step("G01", ones(&lens)).keeps(f64::from(15f32.sqrt()));
    reads(answer.norm, "3.8729833");
    each_gpu(|gpu| {
        let mut before = ones(&lens);
        let buffers = upload(gpu, &before);
        let mut limits = gradclip::plan::PlanLimits::from_device(gpu.context.device());
        limits.tile_words = 2;
        let mut builder = GradSet::builder("set").plan_limits(limits);
        for (i, buffer) in buffers.iter().enumerate() {
            let slice = TensorSlice { buffer, offset: 0, len: lens[i] as u64, format: Format::F32 };
            builder = builder.tensor(i.to_string(), slice);
        }
        let set = builder.build(&gpu.context).unwrap();
        assert_eq!(run(gpu, &set, LossScale::ONE, None).total_norm, Some(f64::from(15f32.sqrt())));
        before[4].1[24..].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
        gpu.context.queue().write_buffer(&buffers[4], 0, &before[4].1);
        let report = run(gpu, &set, LossScale::ONE, None);
        let nonfinite = Nonfinite { neg_inf: 1, first: Some(6), ..Nonfinite::default() };
        let want = [TensorReport { name: "4".into(), nonfinite }];
        assert_eq!(report.nonfinite, want, "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn g02_trailing_empty_tensors() {
    step("G02", [f32s(&[3.0]), f32s(&[4.0]), f32s(&[]), f32s(&[])])
        .clip(1.0)
        .gives(5.0, [f32s(&[0.6]), f32s(&[0.8]), f32s(&[]), f32s(&[])]);
}

#[test]
fn g05_a_set_without_tensors_is_clean() {
    each_gpu(|gpu| {
        let absent = GradSet::builder("A").build(&gpu.context).unwrap();
        let buffers = upload(gpu, &[f32s(&[2.0])]);
        let present = f32_set(gpu, &buffers);
        let mut encoder = encoder(&gpu.context);
        absent.record(&mut encoder, scale(2.0), clip(1.0)).unwrap();
        present.record(&mut encoder, scale(2.0), clip(1.0)).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        let report = absent.read_report().unwrap();
        assert_eq!((report.found_inf, report.overflow, report.run), (false, false, 1));
        assert_eq!((report.total_norm, report.coefficient, report.factor), (Some(0.0), Some(1.0), Some(0.5)));
        assert!(report.nonfinite.is_empty());
        assert_eq!(present.read_report().unwrap().total_norm, Some(1.0));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[1.0]).1, "{}", adapters::label(&gpu.info));
    });
    step("G05, only empty tensors", [f32s(&[]), f16s(&[]), bf16s(&[])]).scale(2.0).keeps(0.0);
}

/// The f32 result is one unit in the last place below the f32 nearest to 1.2: the coefficient 1.3 / 13 is
/// rounded first.
#[test]
fn g06_formats_share_one_norm() {
    let answer = step("G06", [f16s(&[3.0]), bf16s(&[4.0]), f32s(&[12.0])])
        .clip(1.3)
        .gives(13.0, [f16_bits(&[0x34cd]), bf16_bits(&[0x3ecd]), f32_bits(&[0x3f99_9999])]);
    reads(answer.coefficient, "0.1");
    assert_eq!(f16s(&[0.3]), f16_bits(&[0x34cd]));
    assert_eq!(bf16s(&[0.4]), bf16_bits(&[0x3ecd]));
    reads(f64::from(f32::from_bits(0x3f99_9999)), "1.2");
}

#[test]
fn g08_one_norm_for_all_tensors_of_an_optimizer() {
    step("G08", [f32s(&[3.0]), f32s(&[4.0])]).clip(1.0).gives(5.0, [f32s(&[0.6]), f32s(&[0.8])]);
}

#[test]
fn g09_a_tied_weight_given_twice_is_refused() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[6.0, 8.0])]);
        let tied = || whole(&buffers[0], Format::F32);
        let twice =
            GradSet::builder("adamw").tensor("wte", tied()).tensor("lm_head", tied()).build(&gpu.context);
        let overlap = Error::Overlap { first: "wte".into(), second: "lm_head".into() };
        assert_eq!(twice.err(), Some(overlap), "{}", adapters::label(&gpu.info));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[6.0, 8.0]).1);
        // Given once, as the message says.
        let once = GradSet::builder("adamw").tensor("wte", tied()).build(&gpu.context).unwrap();
        assert_eq!(run(gpu, &once, scale(2.0), None).total_norm, Some(5.0));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[3.0, 4.0]).1);
    });
}

#[test]
fn g11_one_call_clips_a_list_and_reports_the_norm_before() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0]), f32s(&[4.0])]);
        let set = f32_set(gpu, &buffers);
        submit(gpu, &set, LossScale::ONE, clip(1.0));
        let report = set.read_report().unwrap();
        assert_eq!(report.total_norm, Some(5.0), "{}", adapters::label(&gpu.info));
        assert!(report.clipped);
        let after = run(gpu, &set, LossScale::ONE, None).total_norm.unwrap();
        assert!((after - 1.0).abs() < 2f64.powi(-22), "{after}");
    });
}
