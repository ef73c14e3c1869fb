//! What the tests that need a GPU share: the adapters and the conformance runner's own code.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::OnceLock;

#[path = "../../examples/conformance/adapters.rs"]
pub mod adapters;
#[path = "../../examples/conformance/case_file.rs"]
pub mod case_file;
#[path = "../../examples/conformance/cases.rs"]
pub mod cases;
pub mod example;
#[path = "../../examples/conformance/limit.rs"]
pub mod limit;
#[path = "../../examples/conformance/runner.rs"]
pub mod runner;
#[path = "../../examples/conformance/scaler.rs"]
pub mod scaler;

pub use adapters::Gpu;

/// Every adapter of this machine, opened once. Fails, and says what to install, where there is none.
pub fn gpus() -> &'static [Gpu] {
    static GPUS: OnceLock<Vec<Gpu>> = OnceLock::new();
    GPUS.get_or_init(|| {
        let adapters = adapters::named("all").unwrap_or_else(|e| panic!("{e}"));
        adapters.iter().map(|a| adapters::open(a).unwrap_or_else(|e| panic!("{e}"))).collect()
    })
}

/// Elements of an f32 tensor as bytes.
pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// What a report found nonfinite, of the tensors in which it did.
pub fn found(report: &gradclip::Report) -> Vec<gradclip::Nonfinite> {
    report.nonfinite.iter().map(|tensor| tensor.nonfinite).collect()
}

/// The same of counts by tensor.
pub fn bad(nonfinite: &[gradclip::Nonfinite]) -> Vec<gradclip::Nonfinite> {
    nonfinite.iter().copied().filter(|counts| counts.first.is_some()).collect()
}

/// The norms of a report's tensors, without the names.
pub fn tensor_norms(step: &gradclip::StepReport) -> Option<Vec<Option<f64>>> {
    step.tensor_norms.as_ref().map(|norms| norms.iter().map(|tensor| tensor.norm).collect())
}
