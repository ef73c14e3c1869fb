//! All of `steps.json` and `clips.json` on every adapter, through the conformance runner's own code; and what it refuses
//! to read.

mod common;

#[path = "conformance/case_files.rs"]
mod case_files;

use common::limit::Limit;
use common::{adapters, cases, gpus, runner};

#[test]
fn every_case_on_every_adapter() {
    let cases = cases::built_in().unwrap();
    let count = |of: fn(&Limit) -> bool| cases.iter().filter(|case| of(&case.limit)).count();
    let counts = [
        count(|limit| matches!(limit, Limit::Norm(_))),
        count(|limit| matches!(limit, Limit::EachTensor(_))),
        count(|limit| matches!(limit, Limit::Value(_))),
    ];
    assert!(counts[0] >= 143 && counts[1] >= 20 && counts[2] >= 30, "{counts:?}");
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

#[test]
fn the_runner_sees_a_wrong_coefficient_of_a_tensor() {
    let mut cases = cases::parse(cases::CLIPS).unwrap();
    let at = cases.iter().position(|case| case.expect.each.len() > 2).unwrap();
    let mut case = cases.swap_remove(at);
    case.expect.each[1].coefficient.significand ^= 1;
    let tally = runner::run(&gpus()[0].context, &[case]);
    assert_eq!((tally.checks, tally.mismatches), (5, 5));
    assert!(tally.first.unwrap().contains("tensor 1: TensorClip"));
}
