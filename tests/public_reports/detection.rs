//! Kind I: NaN and infinity are found whatever the driver assumes of floats.

use gradclip::{Format, LossScale, Nonfinite};

use crate::common::adapters;
use crate::support::{
    Tensor, bf16_bits, bytes, each_gpu, f16_bits, f32_bits, f32_set, f32s, run, step, upload, whole,
};

/// Counts for one bad element.
fn one(format: Format, bits: u32, first: u64) -> Nonfinite {
    let (fraction, sign) = match format {
        Format::F32 => (0x007f_ffff, 1 << 31),
        Format::F16 => (0x03ff, 1 << 15),
        Format::Bf16 => (0x007f, 1 << 15),
    };
    let nan = bits & fraction != 0;
    let negative = bits & sign != 0;
    Nonfinite {
        nan: nan.into(),
        pos_inf: (!nan && !negative).into(),
        neg_inf: (!nan && negative).into(),
        first: Some(first),
    }
}

/// Each pattern at each position in 257 zeros, one step for each.
#[test]
fn i01_every_pattern_at_every_position() {
    each_gpu(|gpu| {
        let zeros = f32s(&[0.0; 257]);
        let buffers = upload(gpu, std::slice::from_ref(&zeros));
        let set = f32_set(gpu, &buffers);
        for bits in [0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff_u32] {
            for position in [0, 255, 256] {
                let mut image = zeros.1.clone();
                image[4 * position..][..4].copy_from_slice(&bits.to_le_bytes());
                gpu.context.queue().write_buffer(&buffers[0], 0, &image);
                let report = run(gpu, &set, LossScale::ONE, None);
                let at = format!("{bits:08x} at {position}, {}", adapters::label(&gpu.info));
                assert!(report.found_inf && !report.overflow, "{at}");
                let nonfinite: Vec<_> = report.bad_tensors().map(|bad| bad.nonfinite).collect();
                assert_eq!(nonfinite, [one(Format::F32, bits, position as u64)], "{at}");
                assert_eq!(bytes(gpu, &buffers[0]), image, "{at}");
            }
        }
        gpu.context.queue().write_buffer(&buffers[0], 0, &zeros.1);
        assert!(!run(gpu, &set, LossScale::ONE, None).found_inf);
    });
}

/// Infinite, then each pattern alone, in every layout; then the largest finite numbers.
fn patterns(id: &str, format: Format, make: impl Fn(u32) -> Tensor, bad: &[u32], largest: [u32; 2]) {
    for &bits in bad {
        step(&format!("{id}, {bits:x}"), [make(bits)]).skips(&[one(format, bits, 0)]);
    }
    each_gpu(|gpu| {
        for bits in largest {
            let buffers = upload(gpu, &[make(bits), make(bits)]);
            let set = gradclip::GradSet::builder("set")
                .tensor("a", gradclip::TensorSlice { len: 1, ..whole(&buffers[0], format) })
                .tensor("b", gradclip::TensorSlice { len: 1, ..whole(&buffers[1], format) })
                .build(&gpu.context)
                .unwrap();
            let report = run(gpu, &set, LossScale::ONE, None);
            assert!(!report.found_inf, "{id}, {bits:x}, {}", adapters::label(&gpu.info));
        }
    });
}

#[test]
fn i02_every_nan_and_not_the_largest_number() {
    patterns("I02", Format::F32, |bits| f32_bits(&[bits]), &[0x7fff_ffff], [0x7f7f_ffff, 0xff7f_ffff]);
}

#[test]
fn i07_16_bit_patterns_are_tested_as_stored() {
    let f16 = |bits: u32| f16_bits(&[bits as u16]);
    patterns("I07 f16", Format::F16, f16, &[0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff], [0x7bff, 0xfbff]);
    let bf16 = |bits: u32| bf16_bits(&[bits as u16]);
    patterns("I07 bf16", Format::Bf16, bf16, &[0x7f80, 0xff80, 0x7f81, 0x7fc0], [0x7f7f, 0xff7f]);
}

/// The test comes before the multiplication: a finite gradient whose quotient overflows is no infinite
/// gradient, and one that is infinite is not hidden by a limit of 0.
#[test]
fn i07_the_test_is_on_the_stored_gradient() {
    step("I07, overflow", [f32_bits(&[0x7f7f_ffff])]).scale(0.5).overflows();
    step("I07, limit 0", [f32_bits(&[0x7f80_0000])]).clip(0.0).skips(&[one(Format::F32, 0x7f80_0000, 0)]);
}
