//! Kind E: limits of 0, below 0, NaN and infinity, eps, and a norm at the limit.

use gradclip::{ClipNorm, Error, Format, GradSet, LossScale};

use crate::support::{bytes, each_gpu, f32_bits, f32_set, f32s, reads, run, step, upload, whole};

#[test]
fn e01_zero_norm_and_zero_limit_make_no_nan() {
    step("E01", [f32s(&[0.0, 0.0, 0.0])]).clip(0.0).keeps(0.0);
    step("E01, default eps", [f32s(&[0.0, 0.0, 0.0])]).clip(0.0).eps(1e-6).keeps(0.0);
}

/// The limit is checked when it is made, so a step cannot be recorded with a bad one.
#[test]
fn e03_a_negative_or_nan_limit_is_an_error_before_any_gpu_work() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        let mut encoder = crate::support::encoder(&gpu.context);
        for bad in [-1.0, f32::NAN, f32::NEG_INFINITY, -f32::MIN_POSITIVE] {
            let step =
                ClipNorm::new(bad).and_then(|clip| set.record(&mut encoder, LossScale::ONE, Some(clip)));
            assert!(
                matches!(step, Err(Error::MaxNorm(given)) if given.to_bits() == bad.to_bits()),
                "{step:?}"
            );
        }
        gpu.context.queue().submit([encoder.finish()]);
        assert!(matches!(set.read_report(), Err(Error::NotRun { .. })));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[3.0, 4.0]).1);
    });
}

#[test]
fn e04_an_infinite_limit_is_none() {
    step("E04", [f32s(&[3.0, 4.0])]).clip(f32::INFINITY).keeps(5.0);
    step("E04, zeros", [f32s(&[0.0, 0.0])]).clip(f32::INFINITY).keeps(0.0);
}

/// 0.012, 0.016 and 0.01 are not f32 numbers: the factors are the reported ones within one unit in the last
/// place.
#[test]
fn e06_eps_is_selectable_and_its_default_documented() {
    let gradients = || [f32s(&[0.012, 0.016])];
    let norm = f64::from(f32::from_bits(0x3ca3_d70b));
    let ideal =
        step("E06, eps 0", gradients()).clip(0.01).gives(norm, [f32_bits(&[0x3bc4_9ba4, 0x3c03_126e])]);
    assert_eq!(ideal.factor, f64::from(f32::from_bits(0x3eff_fffe)));
    reads(ideal.factor, "0.5");
    let padded = step("E06, eps 1e-6", gradients())
        .clip(0.01)
        .eps(1e-6)
        .gives(norm, [f32_bits(&[0x3bc4_9920, 0x3c03_10c0])]);
    assert_eq!(padded.factor, f64::from(f32::from_bits(0x3eff_fcb7)));
    reads(padded.factor, "0.49997500");

    assert_eq!(ClipNorm::DEFAULT_EPS, 1e-6);
    each_gpu(|gpu| {
        let buffers = upload(gpu, &gradients());
        let set =
            GradSet::builder("set").tensor("g", whole(&buffers[0], Format::F32)).build(&gpu.context).unwrap();
        let report = run(gpu, &set, LossScale::ONE, Some(ClipNorm::new(0.01).unwrap()));
        assert_eq!(report.factor, Some(padded.factor));
        assert_eq!(bytes(gpu, &buffers[0]), padded.tensors[0]);
    });
}

/// At the limit nothing changes, whatever eps is (`ClipNorm`).
#[test]
fn e08_a_norm_at_the_limit_changes_nothing() {
    step("E08, eps 0", [f32s(&[3.0, 4.0])]).clip(5.0).keeps(5.0);
    let answer = step("E08, eps 1e-6", [f32s(&[3.0, 4.0])]).clip(5.0).eps(1e-6).keeps(5.0);
    assert_eq!(answer.coefficient, 1.0);
    // One step of f32 below the norm it does.
    let below = f32::from_bits(5f32.to_bits() - 1);
    let answer = step("E08, below", [f32s(&[3.0, 4.0])])
        .clip(below)
        .gives(5.0, [f32_bits(&[0x403f_fffe, 0x407f_fffe])]);
    assert!(answer.coefficient < 1.0);
}
