//! A GPU that is wrong in one bit is found out. No adapter here is, so the comparison is called itself.

#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../../examples/clip/outcome.rs"]
mod outcome;
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../../examples/clip/tensors.rs"]
mod tensors;

use gradclip::{ClipNorm, LossScale};
use outcome::{Outcome, difference, on_reference};
use tensors::Tensor;

fn recorded() -> (Vec<Tensor>, Outcome) {
    let file = super::process::data("digits_mlp_f16.safetensors");
    let tensors = tensors::read(&file, "grad/0/").unwrap().tensors;
    let clip = ClipNorm::new(0.01).unwrap();
    let outcome = on_reference(&tensors, LossScale::new(4.0).unwrap(), clip);
    (tensors, outcome)
}

#[test]
fn equal_outcomes_agree() {
    let (tensors, cpu) = recorded();
    assert_eq!(difference(&tensors, &cpu.clone(), &cpu), None);
}

#[test]
fn one_wrong_bit_is_found_with_tensor_and_index() {
    let (tensors, cpu) = recorded();
    let name = &tensors[3].name;
    let mut gpu = cpu.clone();
    gpu.results[3][2 * 7] ^= 1;
    gpu.results[4][0] ^= 1;
    let bits = |o: &Outcome| format!("0x{:02x}{:02x}", o.results[3][15], o.results[3][14]);
    let want = format!("{name:?} [7] is {}, not {}", bits(&gpu), bits(&cpu));
    assert_eq!(difference(&tensors, &gpu, &cpu), Some(want));
}

type Change = fn(&mut Outcome, fn(f64) -> f64);

#[test]
fn every_number_counts() {
    let (tensors, cpu) = recorded();
    let next = |x: f64| f64::from_bits(x.to_bits() + 1);
    let changes: [(&str, Change); 7] = [
        ("found_inf is true, not false", |o, _| o.found_inf = true),
        ("overflow is true, not false", |o, _| o.overflow = true),
        ("norm is ", |o, next| o.norm = o.norm.map(next)),
        ("norm after is ", |o, next| o.norm_after = o.norm_after.map(next)),
        ("coefficient is ", |o, next| o.coefficient = o.coefficient.map(next)),
        ("factor is ", |o, next| o.factor = o.factor.map(next)),
        ("\"grad/0/0.bias\" holds 1 NaN, ", |o, _| o.nonfinite[0].nan = 1),
    ];
    assert_eq!(tensors[0].name, "grad/0/0.bias");
    for (want, change) in changes {
        let mut gpu = cpu.clone();
        change(&mut gpu, next);
        let found = difference(&tensors, &gpu, &cpu).unwrap();
        assert!(found.starts_with(want), "{found}");
    }
}
