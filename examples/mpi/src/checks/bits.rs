//! The ranks together make the step of one process, on every bit.

use gradclip::Context;

use crate::Fallible;
use crate::checks::{Decision, compare, of_outcome, of_report};
use crate::cut::Cuts;
use crate::data::{self, Step};
use crate::part::Part;
use crate::ranks::Ranks;

pub fn check(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    let mut steps: Vec<Step> = Vec::new();
    for run in ["gpt_amp_f16", "digits_mlp_scale_1000", "digits_mlp_f16", "digits_mlp_bf16"] {
        steps.extend(data::recorded(run)?);
    }
    steps.extend(data::mixed()?);
    let mut complaints = Vec::new();
    let mut kinds = [0; 4];
    let mut idle = 0;
    for (seed, step) in (1..).zip(&steps) {
        let cuts = Cuts::uneven(step.lens(), ranks.size, seed);
        idle += (0..ranks.size).filter(|&rank| cuts.of(rank).all(|range| range.is_empty())).count();
        let part = Part::new(gpu, &step.part(&cuts, ranks.rank))?;
        let report = part.step(&ranks.world, step.scale, step.clip)?;
        let kind = match () {
            () if report.skipped => 3,
            () if report.factor == Some(1.0) => 2,
            () if report.clipped => 0,
            () => 1,
        };
        kinds[kind] += 1;
        let (bytes, decision) = (part.bytes()?, of_report(&report));
        complaints.extend(compare(ranks, &step.name, &cuts, (&bytes, decision), || on_one(gpu, step))?);
    }
    let [clipped, unscaled, nothing, skipped] = kinds;
    let summary = format!(
        "{} steps on {} have the bits of one process: {clipped} clipped, {unscaled} only unscaled, {nothing} with \
         nothing to do, {skipped} skipped; parts without any gradient: {idle}",
        steps.len(),
        ranks.count()
    );
    ranks.verdict("bits", &summary, &complaints)
}

/// The step of one process, about which the CPU and one set on rank 0's device have to agree.
fn on_one(gpu: &Context, step: &Step) -> Fallible<(Vec<Vec<u8>>, Decision)> {
    let (outcome, bytes) = step.on_reference();
    let decision = of_outcome(&outcome, step.scale.get());
    let whole = Part::new(gpu, &step.tensors)?;
    let report = whole.step_alone(step.scale, step.clip)?;
    if of_report(&report) != decision || whole.bytes()? != bytes.concat() {
        return Err(format!("{}: GPU and CPU differ on one process already", step.name).into());
    }
    Ok((bytes, decision))
}
