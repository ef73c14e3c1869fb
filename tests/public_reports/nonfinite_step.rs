//! Kind D: what a step with NaN or infinity leaves behind.

use gradclip::{LossScale, Nonfinite};

use crate::common::adapters;
use crate::support::{bytes, clip, each_gpu, f32_set, f32s, run, scale, step, submit, upload, whole};

const FINITE: Nonfinite = Nonfinite { nan: 0, pos_inf: 0, neg_inf: 0, first: None };

#[test]
fn d01_one_nan_changes_no_tensor() {
    step("D01", [f32s(&[1.0, 2.0]), f32s(&[f32::NAN, 3.0]), f32s(&[4.0])]).clip(1.0).skips(&[
        FINITE,
        Nonfinite { nan: 1, first: Some(0), ..FINITE },
        FINITE,
    ]);
}

#[test]
fn d02_the_report_names_the_bad_tensor() {
    each_gpu(|gpu| {
        let before = [f32s(&[1.0]), f32s(&[f32::INFINITY])];
        let buffers = upload(gpu, &before);
        let set = gradclip::GradSet::builder("adamw")
            .tensor("a", whole(&buffers[0], gradclip::Format::F32))
            .tensor("b", whole(&buffers[1], gradclip::Format::F32))
            .build(&gpu.context)
            .unwrap();
        let report = run(gpu, &set, LossScale::ONE, clip(1.0));
        assert!(report.found_inf && !report.overflow && !report.clipped);
        let bad: Vec<_> = report.bad_tensors().map(|bad| (bad.name.as_str(), bad.nonfinite)).collect();
        let inf = Nonfinite { pos_inf: 1, first: Some(0), ..FINITE };
        assert_eq!(bad, [("b", inf)], "{}", adapters::label(&gpu.info));
        assert_eq!([report.nonfinite_in("a"), report.nonfinite_in("b")], [FINITE, inf]);
        assert_eq!(
            report.to_string(),
            "scale 1, found inf/NaN, step skipped: b (0 NaN, 1 +inf, 0 -inf, first at 0)"
        );
        for (buffer, (_, before)) in buffers.iter().zip(&before) {
            assert_eq!(bytes(gpu, buffer), *before);
        }
    });
}

#[test]
fn d03_no_nan_where_the_input_was_finite() {
    step("D03", [f32s(&[f32::INFINITY, 1.0])]).clip(1.0).skips(&[Nonfinite {
        pos_inf: 1,
        first: Some(0),
        ..FINITE
    }]);
}

#[test]
fn d04_the_norm_is_never_a_mark() {
    let answer = step("D04 (i)", [f32s(&[2.0, f32::NAN])]).clip(1.0).skips(&[Nonfinite {
        nan: 1,
        first: Some(1),
        ..FINITE
    }]);
    assert!(answer.norm.is_sign_positive());
    let answer = step("D04 (ii)", [f32s(&[0.0, 0.0])]).clip(1.0).keeps(0.0);
    assert!(answer.norm.is_sign_positive());
}

/// One call with scale and limit, and one call for each: the same bits, with finite gradients and without.
#[test]
fn d06_one_call_and_two_leave_the_same_bits() {
    let clipped = [0.6f32, 0.8];
    for (before, after) in [([f32::INFINITY, 2.0], [f32::INFINITY, 2.0]), ([6.0, 8.0], clipped)] {
        each_gpu(|gpu| {
            let buffers = upload(gpu, &[f32s(&before), f32s(&before)]);
            let fused = f32_set(gpu, &buffers[..1]);
            let fused_report = run(gpu, &fused, scale(2.0), clip(1.0));
            let two_calls = f32_set(gpu, &buffers[1..]);
            let unscaled = run(gpu, &two_calls, scale(2.0), None);
            let report = run(gpu, &two_calls, LossScale::ONE, clip(1.0));
            let found = before[0].is_infinite();
            assert_eq!([fused_report.found_inf, unscaled.found_inf, report.found_inf], [found; 3]);
            assert_eq!(fused_report.total_norm, report.total_norm);
            for buffer in &buffers {
                assert_eq!(bytes(gpu, buffer), f32s(&after).1, "{}", adapters::label(&gpu.info));
            }
        });
    }
}

#[test]
fn d09_the_flag_is_cleared_between_steps() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[f32::INFINITY])]);
        let set = f32_set(gpu, &buffers);
        let report = run(gpu, &set, scale(2.0), None);
        assert!(report.found_inf);
        let bad: Vec<_> = report.bad_tensors().map(|bad| bad.nonfinite).collect();
        assert_eq!(bad, [Nonfinite { pos_inf: 1, first: Some(0), ..FINITE }]);
        gpu.context.queue().write_buffer(&buffers[0], 0, &f32s(&[2.0]).1);
        let report = run(gpu, &set, scale(2.0), None);
        assert_eq!(
            (report.found_inf, report.total_norm),
            (false, Some(1.0)),
            "{}",
            adapters::label(&gpu.info)
        );
        assert_eq!(report.nonfinite, []);
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[1.0]).1);

        // Both in flight, nothing read between them.
        gpu.context.queue().write_buffer(&buffers[0], 0, &f32s(&[f32::INFINITY]).1);
        submit(gpu, &set, scale(2.0), None);
        gpu.context.queue().write_buffer(&buffers[0], 0, &f32s(&[2.0]).1);
        let report = run(gpu, &set, scale(2.0), None);
        assert_eq!((report.found_inf, report.total_norm, report.run), (false, Some(1.0), 4));
    });
}
