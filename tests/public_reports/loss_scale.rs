//! Kind F, as far as it concerns the division by the scale and not the scale's own state.

use gradclip::{Error, LossScale};

use crate::support::{f32_bits, f32s, step};

#[test]
fn f02_the_reciprocal_of_a_huge_scale_is_not_flushed() {
    let huge = 2f32.powi(127);
    step("F02", [f32s(&[huge])]).scale(huge).gives(1.0, [f32s(&[1.0])]);
}

/// 1 / 2^-149 is no f32. Where the quotient does not fit either, the step says overflow and keeps the
/// gradients.
#[test]
fn f03_a_vanishing_scale_makes_no_nan() {
    assert!(matches!(LossScale::new(0.0), Err(Error::LossScale(_))));
    let least = f32::from_bits(1);
    step("F03, fits", [f32_bits(&[0, 1])]).scale(least).gives(1.0, [f32s(&[0.0, 1.0])]);
    let answer = step("F03, does not fit", [f32s(&[0.0, 1.0])]).scale(least).overflows();
    assert_eq!(answer.norm, 2f64.powi(149));
}

#[test]
fn f08_the_limit_is_not_compared_in_the_scaled_domain() {
    let large = 2f32.powi(126);
    step("F08", [f32s(&[large])]).scale(large).clip(8.0).gives(1.0, [f32s(&[1.0])]);
}
