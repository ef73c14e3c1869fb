//! The kernels return the same bits with and without wgpu's runtime checks.

mod common;

use common::{adapters, cases, gpus, runner};
use gradclip::Context;

#[test]
fn o02_bounded_loops_change_no_bit() {
    let mut cases = cases::parse(cases::BUILT_IN).unwrap();
    // Every kernel is among these.
    cases.extend(cases::parse(cases::CLIPS).unwrap().into_iter().step_by(4));
    for gpu in gpus() {
        let (device, queue) = (gpu.context.device(), gpu.context.queue());
        let checked = Context::with_runtime_checks(device, queue).unwrap();
        let tally = runner::run(&checked, &cases);
        assert_eq!(tally.mismatches, 0, "{}: {:?}", adapters::label(&gpu.info), tally.first);
    }
}
