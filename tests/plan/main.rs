//! The planner without a driver: whatever is asked, every element lies in exactly one tile and every limit is kept.

mod check;
mod errors;
mod memory;
mod random;
mod reports;
mod sizes;

use gradclip::Format;
use gradclip::plan::{Plan, PlanLimits, PlanTensor};

/// Tensors of these lengths, each in a buffer of its own.
fn own_buffers(format: Format, lens: &[u64]) -> Vec<PlanTensor> {
    let numbered = lens.iter().enumerate();
    numbered.map(|(buffer, &len)| PlanTensor::new(buffer, 0, len, format)).collect()
}

/// Tensors of these lengths in one buffer, `gap` bytes apart.
fn arena(format: Format, lens: &[u64], gap: u64) -> Vec<PlanTensor> {
    let mut offset = 0;
    lens.iter()
        .map(|&len| {
            let tensor = PlanTensor::new(0, offset, len, format);
            offset = tensor.end() + gap;
            tensor
        })
        .collect()
}

/// A plan that has been checked.
fn plan(tensors: &[PlanTensor], limits: &PlanLimits) -> Plan {
    let plan = Plan::new(tensors, limits).unwrap_or_else(|e| panic!("{e}"));
    check::check(tensors, limits, &plan);
    plan
}

/// WebGPU's limits with some of them changed.
fn limits(change: impl FnOnce(&mut PlanLimits)) -> PlanLimits {
    let mut limits = PlanLimits::webgpu();
    change(&mut limits);
    limits
}
