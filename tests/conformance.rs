//! All of `steps.json` on every adapter, through the conformance runner's own code.

mod common;

use common::{adapters, cases, gpus, runner};

#[test]
fn every_case_on_every_adapter() {
    let cases = cases::parse(cases::BUILT_IN).unwrap();
    assert!(cases.len() >= 79, "{} cases", cases.len());
    for gpu in gpus() {
        let tally = runner::run(&gpu.context, &cases);
        assert_eq!(tally.checks, cases.len() * (1 + runner::Layout::ALL.len()));
        assert_eq!(tally.mismatches, 0, "{}: {:?}", adapters::label(&gpu.info), tally.first);
    }
}

#[test]
fn the_runner_sees_a_wrong_bit() {
    let mut case = cases::parse(cases::BUILT_IN).unwrap().swap_remove(0);
    case.expect.tensors[0][0] ^= 1;
    let tally = runner::run(&gpus()[0].context, &[case]);
    assert_eq!((tally.checks, tally.mismatches), (5, 5));
    assert!(tally.first.unwrap().contains("tensor 0 element 0: 3f19999a, expected 3f19999b"));
}
