//! Kind B: sums of squares and clip factors beyond the range of the format.

use crate::support::{bf16_bits, f16_bits, f16s, f32_bits, f32s, reads, step};

#[test]
fn b01_a_square_beyond_f16_is_no_infinity() {
    step("B01", [f16s(&[300.0])]).clip(1.0).gives(300.0, [f16_bits(&[0x3c00])]);
}

#[test]
fn b02_norms_combine_beyond_f16() {
    let answer = step("B02", [f16s(&[5000.0]), f16s(&[5000.0])])
        .clip(1.0)
        .gives(f64::from(f32::from_bits(0x45dc_f88b)), [f16_bits(&[0x39a8]), f16_bits(&[0x39a8])]);
    reads(answer.norm, "7071.0678");
}

#[test]
fn b03_large_entries_clip_not_vanish() {
    let answer = step("B03", [f32s(&[1e20, 1.0, 1.0])])
        .clip(1.0)
        .gives(f64::from(1e20f32), [f32_bits(&[0x3f80_0000, 0x1e3c_e508, 0x1e3c_e508])]);
    reads(answer.norm, "1e20");
    reads(f64::from(f32::from_bits(0x1e3c_e508)), "1e-20");
}

#[test]
fn b05_squares_below_the_smallest_f32_count() {
    let answer = step("B05", [f32s(&[3e-23, 4e-23])])
        .clip(1e-24)
        .gives(f64::from(f32::from_bits(0x1a71_c901)), [f32_bits(&[0x1739_b0e6, 0x1777_9687])]);
    reads(answer.norm, "5e-23");
    reads(f64::from(f32::from_bits(0x1739_b0e6)), "6e-25");
    reads(f64::from(f32::from_bits(0x1777_9687)), "8e-25");
}

#[test]
fn b07_norms_beyond_the_range_of_their_squares() {
    for (id, bits, norm, decimal) in
        [("B07, 2^100", 0x7180, 0x71b5_04f3, "1.7927e30"), ("B07, 2^-100", 0x0d80, 0x0db5_04f3, "1.1156e-30")]
    {
        let answer =
            step(id, [bf16_bits(&[bits, bits])]).clip(f32::INFINITY).keeps(f32::from_bits(norm).into());
        reads(answer.norm, decimal);
    }
}

#[test]
fn b08_the_factor_is_not_rounded_to_the_format() {
    let answer = step("B08", [f16s(&[60_000.0]), f32s(&[1e8])])
        .clip(1.0)
        .gives(100_000_016.0, [f16_bits(&[0x10ea]), f32_bits(&[0x3f7f_fffd])]);
    reads(answer.norm, "100000018");
    reads(half::f16::from_bits(0x10ea).into(), "5.9986e-4");
    reads(f64::from(f32::from_bits(0x3f7f_fffd)), "0.99999982");
}
