//! What comes of clipping each part by its own norm.

use gradclip::{ClipNorm, Context};

use crate::Fallible;
use crate::cut::Cuts;
use crate::data;
use crate::part::Part;
use crate::ranks::Ranks;

/// So small that the part of each rank is above it.
const MAX_NORM: f32 = 0.1;

pub fn check(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    let steps = data::recorded("gpt_amp_f16")?;
    let step = steps.get(2).ok_or("no step")?;
    let clip = Some(ClipNorm::new(MAX_NORM)?);
    let cuts = Cuts::even(step.lens(), ranks.size);
    let gradients = step.part(&cuts, ranks.rank);
    let part = Part::new(gpu, &gradients)?;

    // Every rank calls clip_grad_norm_ on what it has.
    let report = part.step_alone(step.scale, clip)?;
    let factors = ranks.gather(&report.factor.ok_or("the step was skipped")?.to_le_bytes())?;
    let wrong = ranks.gather(&part.bytes()?)?;
    part.upload(&gradients);
    part.step(&ranks.world, step.scale, clip)?;
    let right = ranks.gather(&part.bytes()?)?;

    let mut complaints = Vec::new();
    let mut summary = String::new();
    if ranks.rank == 0 {
        let norm = |parts| Ok::<f64, &str>(step.norm_of(cuts.join(parts).ok_or("bytes are missing")?));
        let (wrong, right, limit) = (norm(&wrong)?, norm(&right)?, f64::from(MAX_NORM));
        let factors = factors.iter().map(|bytes| bytemuck::pod_read_unaligned::<f64>(bytes));
        let (least, most) = factors.fold((f64::MAX, 0.0), |(least, most), f| (f.min(least), f.max(most)));
        summary = format!(
            "every rank clipping its own part to {MAX_NORM} makes an update of norm {wrong:.6}, {:.3} times the limit (at \
             most sqrt({}) = {:.3}), bent by factors {:.2} apart; with the ledgers it is {right:.6}",
            wrong / limit,
            ranks.size,
            (ranks.size as f64).sqrt(),
            most / least
        );
        if right > limit * (1.0 + 1e-6) || right < limit * 0.999 {
            complaints.push(format!("with the ledgers the update has the norm {right}, not {MAX_NORM}"));
        }
        if (wrong > limit * 1.001) != (ranks.size > 1) {
            complaints.push(format!("the mistake makes an update of norm {wrong}: it shows nothing"));
        }
    }
    ranks.verdict("mistake", &summary, &complaints)
}
