//! A `GradScaler` on each rank makes one scale, that of PyTorch.

use gradclip::{Context, GradScaler, LossScale, Report, ScalerConfig};

use crate::checks::{compare, of_outcome, of_report};
use crate::cut::Cuts;
use crate::data::{self, Step};
use crate::part::Part;
use crate::ranks::Ranks;
use crate::{Fallible, exchange};

pub fn check(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    // Ten steps, five of which overflowed, at the scale that PyTorch's scaler gave each.
    let mut steps = data::recorded("digits_mlp_amp_f16")?;
    let (Some(first), Some(last)) = (steps.first(), steps.last().cloned()) else {
        return Err("no steps".into());
    };
    let config =
        ScalerConfig { init_scale: first.scale.get(), growth_interval: 3, ..ScalerConfig::default() };
    let cuts = Cuts::uneven(first.lens(), ranks.size, 3);
    // And one with a single NaN, at the end of the last tensor, so on one rank.
    let mut poisoned =
        Step { name: "a NaN".into(), next_scale: last.next_scale.map(|scale| scale / 2.0), ..last };
    let end = poisoned.tensors.last_mut().ok_or("no tensors")?;
    let at = end.bytes.len() - 4;
    end.bytes[at..].copy_from_slice(&f32::NAN.to_le_bytes());
    steps.push(poisoned);

    let part = Part::new(gpu, &steps[0].part(&cuts, ranks.rank))?;
    let scaler = GradScaler::new(gpu, config)?;
    let mut complaints = Vec::new();
    let mut skipped = 0;
    let mut scales = vec![config.init_scale];
    for step in &steps {
        let report = one_step(ranks, &scaler, &part, step, &cuts)?;
        skipped += usize::from(report.skipped);
        // Here for the check only; training reads nothing back.
        let scale = scaler.state_dict()?.scale;
        if Some(scale) != step.next_scale {
            complaints.push(format!("{}: the scale became {scale}, not {:?}", step.name, step.next_scale));
        }
        if scales.last() != Some(&scale) {
            scales.push(scale);
        }
        let (bytes, decision) = (part.bytes()?, of_report(&report));
        complaints.extend(compare(ranks, &step.name, &cuts, (&bytes, decision), || {
            let (outcome, bytes) = step.on_reference();
            Ok((bytes, of_outcome(&outcome, step.scale.get())))
        })?);
    }
    let scales: Vec<String> = scales.iter().map(|scale| format!("2^{}", scale.log2())).collect();
    let summary = format!(
        "{} updates, {skipped} of them skipped, make the scale {} on each of {}, as in PyTorch",
        steps.len(),
        scales.join(" "),
        ranks.count()
    );
    ranks.verdict("scaler", &summary, &complaints)
}

fn one_step(ranks: &Ranks, scaler: &GradScaler, part: &Part, step: &Step, cuts: &Cuts) -> Fallible<Report> {
    let open = scaler.begin(&part.set)?;
    part.upload(&step.part(cuts, ranks.rank)); // backward
    let open = open.unscale();
    let open = part.submit(|encoder| match step.clip {
        Some(clip) => open.limit(clip).record_ledger(encoder),
        None => open.record_ledger(encoder),
    })?;
    let merged = exchange::merged(&ranks.world, &open.read_ledger()?)?;
    if LossScale::new(merged.scale())? != step.scale {
        return Err(format!("{}: measured with the scale {}", step.name, merged.scale()).into());
    }
    part.submit(|encoder| -> Result<(), gradclip::Error> {
        let recorded = open.record(encoder, &merged)?;
        scaler.update(encoder, [recorded])
    })?;
    Ok(part.set.read_report()?)
}
