//! What holds for every set of gradients, tried on random ones.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "properties/arrange.rs"]
mod arrange;
mod common;
#[path = "properties/inputs.rs"]
mod inputs;
#[path = "properties/ties.rs"]
mod ties;

use arrange::{Arrangement, Placed};
use common::adapters::label;
use common::cases::{Answer, Input};
use common::gpus;
use common::runner::{difference, on_reference};
use gradclip::reference::{TensorBits, plain};
use gradclip::{Format, LossScale};
use proptest::prelude::*;

/// Where one fails the smallest input is printed, and no file is left behind.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[track_caller]
fn check(what: &str, got: &Answer, want: &Answer, input: &Input) {
    let formats: Vec<Format> = input.tensors.iter().map(|t| t.0).collect();
    assert_eq!(difference(got, want, &formats), None, "{what}");
}

/// The norm of stored elements, in f64.
fn norm_f64(input: &Input, tensors: &[Vec<u8>]) -> f64 {
    let mut bytes = tensors.to_vec();
    let bits = |(&(format, _), bytes): (&(Format, Vec<u8>), _)| TensorBits::new(format, bytes);
    let tensors: Vec<TensorBits<'_>> =
        input.tensors.iter().zip(&mut bytes).map(|(t, b)| bits((t, b.as_mut_slice()))).collect();
    plain::norm_f64(&tensors, 1.0)
}

/// What the norm of the stored elements cannot exceed.
///
/// With u = 2^-24, the relative error of one R24 or f32 rounding: the squares put an error of u / 2 into the norm, the
/// root adds u, the coefficient u and the store u; the eps and the comparison only lower the result. That is 3.5 u. A
/// scale that is no power of two adds the roundings of norm * inverse and of the factor, 5.5 u; that of the inverse
/// itself is in both and cancels. A store into a 16-bit format adds half a unit of it. Below a format's normal numbers
/// an error is half the smallest subnormal instead, for each element.
fn bound(input: &Input) -> f64 {
    let unit = 2f64.powi(-22);
    let power_of_two = input.scale.get().is_normal() && input.scale.get().to_bits() & 0x7f_ffff == 0;
    let (mut relative, mut absolute) = (0f64, 0f64);
    for (format, bytes) in &input.tensors {
        let (half_unit, half_subnormal) = match format {
            Format::F32 => (0.0, 2f64.powi(-150)),
            Format::F16 => (2f64.powi(-11), 2f64.powi(-25) + 2f64.powi(-150)),
            Format::Bf16 => (2f64.powi(-8), 2f64.powi(-134) + 2f64.powi(-150)),
        };
        relative = relative.max(half_unit);
        absolute += (bytes.len() as f64 / format.size() as f64) * half_subnormal.powi(2);
    }
    let max_norm = f64::from(input.clip.unwrap().max_norm());
    max_norm * (1.0 + if power_of_two { unit } else { 1.5 * unit }) * (1.0 + relative) + absolute.sqrt()
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn no_cut_order_place_or_run_changes_a_bit(set in inputs::any_set(), cutting in arrange::cuttings()) {
        let input = set.input();
        let want = on_reference(&input);
        let whole = Arrangement::whole(&input);
        let cut = Arrangement::cut(&input, &cutting);
        for gpu in gpus() {
            for (how, arrangement) in [("whole", &whole), ("cut", &cut), ("cut, second run", &cut)] {
                let placed = Placed::new(&gpu.context, &input, arrangement);
                let got = placed.step(input.scale, input.clip);
                check(&format!("{how} on {}", label(&gpu.info)), &got, &want, &input);
            }
        }
    }

    #[test]
    fn after_clipping_the_norm_is_at_most_the_limit(set in inputs::limited_set(), cutting in arrange::cuttings()) {
        let input = set.input();
        let cut = Arrangement::cut(&input, &cutting);
        for gpu in gpus() {
            let who = label(&gpu.info);
            let placed = Placed::new(&gpu.context, &input, &cut);
            let first = placed.step(input.scale, input.clip);
            if first.found_inf {
                prop_assert!(first.overflow);
                continue;
            }
            let after = norm_f64(&input, &first.tensors);
            prop_assert!(after <= bound(&input), "{who}: {after:e} is above {:e}", bound(&input));
            // With nothing to do a second step only measures.
            let second = placed.step(LossScale::ONE, None);
            prop_assert_eq!(&second.tensors, &first.tensors);
            prop_assert_eq!((second.coefficient, second.factor), (1.0, 1.0));
            let off = (second.norm - after).abs();
            let ulp = 2f64.powi((second.norm.to_bits() >> 52) as i32 - 1023 - 23);
            prop_assert!(off <= ulp, "{who}: measured {:e}, in f64 {after:e}", second.norm);
        }
    }
}

proptest! {
    // Each is some sixty steps.
    #![proptest_config(config(8))]

    #[test]
    fn the_least_digit_decides_a_tie(tie in ties::ties()) {
        for step in tie.steps() {
            prop_assert_eq!(on_reference(&step.input).norm, step.norm, "{} on the reference", step.what);
            let whole = Arrangement::whole(&step.input);
            for gpu in gpus() {
                let placed = Placed::new(&gpu.context, &step.input, &whole);
                let got = placed.step(step.input.scale, step.input.clip).norm;
                prop_assert_eq!(got, step.norm, "{} on {}", step.what, label(&gpu.info));
            }
        }
    }
}
