//! Kind A: which comes first, unscale or clip.

use crate::support::{f16_bits, f16s, f32_bits, f32s, step};

#[test]
fn a01_the_limit_is_for_the_unscaled_norm() {
    step("A01", [f32s(&[196_608.0, 262_144.0])])
        .scale(65_536.0)
        .clip(1.0)
        .gives(5.0, [f32_bits(&[0x3f19_999a, 0x3f4c_cccd])]);
}

#[test]
fn a02_the_reported_norm_is_unscaled() {
    step("A02", [f16s(&[3072.0, 4096.0])]).scale(1024.0).clip(1.0).gives(5.0, [f16_bits(&[0x38cd, 0x3a66])]);
}
