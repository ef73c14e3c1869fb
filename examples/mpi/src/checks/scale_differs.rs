//! Ranks that do not agree about the loss scale are told, each of them.

use gradclip::{Context, LossScale};

use crate::cut::Cuts;
use crate::data;
use crate::part::Part;
use crate::ranks::Ranks;
use crate::{Fallible, exchange};

pub fn check(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    if ranks.size == 1 {
        println!("-       scale differs: one rank agrees with itself");
        return Ok(true);
    }
    let steps = data::recorded("gpt_amp_f16")?;
    let step = steps.first().ok_or("no step")?;
    let cuts = Cuts::even(step.lens(), ranks.size);
    let gradients = step.part(&cuts, ranks.rank);
    let part = Part::new(gpu, &gradients)?;
    let mut complaints = Vec::new();
    let mut said = String::new();
    // Each rank in turn has a scale of its own, larger or smaller.
    for odd in 0..ranks.size {
        let factor = match () {
            () if odd != ranks.rank => 1.0,
            () if odd % 2 == 0 => 2.0,
            () => 0.5,
        };
        let scale = LossScale::new(step.scale.get() * factor)?;
        part.submit(|encoder| part.set.record_ledger(encoder, scale, step.clip))?;
        match exchange::merged(&ranks.world, &part.set.read_ledger()?) {
            Ok(merged) => {
                complaints.push(format!("rank {odd} has another scale, but it merged to {merged:?}"))
            }
            Err(error) => said = error.to_string(),
        }
        if !said.contains("different loss scales") {
            complaints.push(format!("rank {odd} has another scale, but the error says {said:?}"));
        }
    }
    if part.bytes()? != gradients.iter().flat_map(|t| t.bytes.clone()).collect::<Vec<u8>>() {
        complaints.push("a gradient changed".into());
    }
    let summary = format!("refused on each of {}: {said}", ranks.count());
    ranks.verdict("scale differs", &summary, &complaints)
}
