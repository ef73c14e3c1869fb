//! Kind J: f16 and bf16 results, subnormals, and the accuracy of the division.

use crate::support::{bf16_bits, bf16s, f16_bits, f16s, f32_bits, f32s, reads, step};

#[test]
fn j01_the_edge_of_f16() {
    step("J01, 65504", [f16s(&[32_752.0])]).scale(0.5).gives(65_504.0, [f16_bits(&[0x7bff])]);
    step("J01, 65536", [f16s(&[32_768.0])]).scale(0.5).overflows();
}

/// The packing of 65519.996 and 65520, as quotients that round to exactly these f32 numbers.
#[test]
fn j01_the_packing_at_the_edge_of_f16() {
    let below = step("J01, 65519.996", [f16_bits(&[0x3c00])])
        .scale(f32::from_bits(0x3780_0801))
        .gives(f64::from(f32::from_bits(0x477f_efff)), [f16_bits(&[0x7bff])]);
    reads(below.norm, "65519.996");
    let at = step("J01, 65520", [f16_bits(&[0x3c06])]).scale(f32::from_bits(0x3780_c80c)).overflows();
    reads(at.norm, "65520");
    assert_eq!(at.norm, f64::from(f32::from_bits(0x477f_f000)));
}

#[test]
fn j03_f16_subnormals_round_and_are_not_flushed() {
    let two_to_minus = |n: i32| 2f32.powi(-n);
    let answer = step("J03", [f16s(&[1.0, two_to_minus(8), 3.0 * two_to_minus(10), two_to_minus(10)])])
        .scale(65_536.0)
        .gives(f64::from(f32::from_bits(0x3780_0068)), [f16_bits(&[0x0100, 0x0001, 0x0001, 0x0000])]);
    assert_eq!(answer.factor, 2f64.powi(-16));
}

#[test]
fn j05_one_rounding_for_unscale_and_clip() {
    let answer = step("J05", [f16_bits(&[0x3c02])])
        .scale(65_536.0)
        .clip(1.070_201_4e-5)
        .gives(f64::from(f32::from_bits(0x3780_4000)), [f16_bits(&[0x00b4])]);
    reads(answer.coefficient, "0.7");
}

#[test]
fn j06_f32_subnormals_are_kept_and_round_to_even() {
    let before = || [f32_bits(&[0x007f_ffff, 0x3f80_0000])];
    step("J06, no limit", before()).clip(f32::INFINITY).keeps(1.0);
    step("J06", before()).clip(0.5).gives(1.0, [f32_bits(&[0x0040_0000, 0x3f00_0000])]);
}

#[test]
fn j07_bf16_gradients_unscale_and_clip() {
    step("J07", [bf16s(&[192.0, 256.0])]).scale(64.0).clip(1.0).gives(5.0, [bf16_bits(&[0x3f1a, 0x3f4d])]);
}

/// Of the two results that the report allows, the definition has the upper: the reciprocal is rounded first.
#[test]
fn j09_the_reciprocal_of_a_scale_that_is_no_power_of_two() {
    let answer = step("J09", [f32s(&[5.0])])
        .scale(49_152.0)
        .gives(f64::from(f32::from_bits(0x38d5_5556)), [f32_bits(&[0x38d5_5556])]);
    reads(answer.norm, "1.0172526e-4");
}
