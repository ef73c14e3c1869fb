//! `scaler.json` on every adapter, through the conformance runner's own code.

mod common;

use common::{adapters, gpus, scaler};

#[test]
fn every_sequence_on_every_adapter() {
    let cases = scaler::parse(scaler::BUILT_IN).unwrap();
    assert!(cases.len() >= 11, "{} cases", cases.len());
    for gpu in gpus() {
        let tally = scaler::run(&gpu.context, &cases);
        assert_eq!(tally.checks, 2 * cases.len());
        assert_eq!(tally.mismatches, 0, "{}: {:?}", adapters::label(&gpu.info), tally.first);
    }
}
