//! A NaN on one rank skips the step on all.

use gradclip::{Context, Nonfinite};

use crate::Fallible;
use crate::cut::Cuts;
use crate::data;
use crate::part::Part;
use crate::ranks::Ranks;

const NAN: [u8; 4] = f32::NAN.to_le_bytes();

pub fn check(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    let steps = data::recorded("gpt_amp_f16")?;
    let step = steps.last().ok_or("no step")?;
    let cuts = Cuts::uneven(step.lens(), ranks.size, 77);
    let clean = step.part(&cuts, ranks.rank);
    let part = Part::new(gpu, &clean)?;
    let mut complaints = Vec::new();
    let mut told = Vec::new();
    for sick in 0..ranks.size {
        // In the middle of what that rank has of its longest tensor. Where it has nothing, it cannot have a NaN.
        let longest = cuts.of(sick).enumerate().max_by_key(|(_, range)| range.len());
        let Some((tensor, range)) = longest.filter(|(_, range)| !range.is_empty()) else { continue };
        let index = range.len() / 8;
        let mut gradients = clean.clone();
        if sick == ranks.rank {
            gradients[tensor].bytes[4 * index..][..4].copy_from_slice(&NAN);
        }
        part.upload(&gradients);
        let report = part.step(&ranks.world, step.scale, step.clip)?;
        if !report.skipped || !report.found_inf || report.overflow || report.factor.is_some() {
            complaints.push(format!("a NaN on rank {sick} did not skip the step: {report:?}"));
        }
        if part.bytes()? != gradients.iter().flat_map(|t| t.bytes.clone()).collect::<Vec<u8>>() {
            complaints.push(format!("a NaN on rank {sick} changed a gradient"));
        }
        let found: Vec<(&str, Nonfinite)> =
            report.bad_tensors().map(|bad| (bad.name.as_str(), bad.nonfinite)).collect();
        let nan = Nonfinite { nan: 1, first: Some(index as u64), ..Nonfinite::default() };
        let own = [(gradients[tensor].name.as_str(), nan)];
        if found != own[..usize::from(sick == ranks.rank)] {
            complaints.push(format!("with a NaN on rank {sick} the report names {found:?}"));
        }
        if sick == ranks.rank {
            let first = range.start / 4;
            told.extend(
                found.first().and_then(|(name, nonfinite)| nonfinite.first.map(|own| (name, own))).map(
                    |(name, own)| {
                        format!("rank {sick} names {name}[{own}], [{}] of the whole", first as u64 + own)
                    },
                ),
            );
        }
    }
    let told: Vec<String> =
        ranks.gather_text(&told.join(""))?.into_iter().filter(|t| !t.is_empty()).collect();
    let summary = format!(
        "one on each rank that has something, {} of {}, skips the step on all, and no byte changes; {}",
        told.len(),
        ranks.count(),
        told.last().map_or("", String::as_str)
    );
    ranks.verdict("NaN", &summary, &complaints)
}
