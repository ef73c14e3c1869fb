//! Tensors of which every rank has a copy, as tensor parallel layers leave their layer norms: counted once.

use gradclip::Context;

use crate::checks::{Decision, of_outcome, of_report};
use crate::cut::Cuts;
use crate::data::{self, Step, Tensor};
use crate::part::Part;
use crate::ranks::Ranks;
use crate::{Fallible, exchange};

pub fn check(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    let steps = data::recorded("gpt_amp_f16")?;
    let step = steps.last().ok_or("no step")?;
    let (copied, cut): (Vec<Tensor>, Vec<Tensor>) =
        step.tensors.iter().cloned().partition(|t| t.name.contains("norm") || t.name.starts_with("ln."));
    let cut = Step { tensors: cut, ..step.clone() };
    let cuts = Cuts::uneven(cut.lens(), ranks.size, 11);
    let part = Part::new(gpu, &cut.part(&cuts, ranks.rank))?;
    let copies = Part::new(gpu, &copied)?;

    // Every rank measures both sets, and one alone adds what all have.
    part.submit(|encoder| part.set.record_ledger(encoder, step.scale, step.clip))?;
    copies.submit(|encoder| copies.set.record_ledger(encoder, step.scale, step.clip))?;
    let mut own = part.set.read_ledger()?;
    let of_copies = copies.set.read_ledger()?;
    if ranks.rank == 0 {
        own.merge(&of_copies)?;
    }
    // A part for each rank, and the copies.
    let merged = exchange::sum(&ranks.world, &own)?.complete(ranks.size as u64 + 1)?;
    part.submit(|encoder| part.set.record_merged(encoder, &merged))?;
    copies.submit(|encoder| copies.set.record_merged(encoder, &merged))?;

    // On one process, the copied tensors first.
    let tensors = [&copied[..], &cut.tensors].concat();
    let whole = Step { tensors, ..step.clone() };
    let (outcome, bytes) = whole.on_reference();
    let want: Decision = of_outcome(&outcome, step.scale.get());
    let (want_copied, want_cut) = bytes.split_at(copied.len());
    let mut complaints = Vec::new();
    for (what, part) in [("part", &part), ("copies", &copies)] {
        let got = of_report(&part.set.read_report()?);
        if got != want {
            complaints.push(format!("the {what} decided {got:x?}, one process {want:x?}"));
        }
    }
    if copies.bytes()? != want_copied.concat() {
        complaints.push("the copies differ from the tensors of one process".into());
    }
    let parts = ranks.gather(&part.bytes()?)?;
    if ranks.rank == 0 && cuts.join(&parts).as_deref() != Some(want_cut) {
        complaints.push("the parts differ from the tensors of one process".into());
    }
    let summary = format!(
        "{} tensors that every rank has and {} that are cut have the bits of one process",
        copied.len(),
        cut.tensors.len()
    );
    ranks.verdict("copies", &summary, &complaints)
}
