//! What a sharded step has to do, and what comes of doing it wrong.

mod bits;
mod copies;
mod mistake;
mod nan;
mod scale_differs;
mod scaler;

use gradclip::reference::Outcome;
use gradclip::{Context, R24, Report};

use crate::Fallible;
use crate::cut::Cuts;
use crate::ranks::Ranks;

const CHECKS: [fn(&Ranks, &Context) -> Fallible<bool>; 6] =
    [bits::check, copies::check, nan::check, scaler::check, scale_differs::check, mistake::check];

/// Whether all held.
pub fn run(ranks: &Ranks, gpu: &Context) -> Fallible<bool> {
    let mut good = true;
    for check in CHECKS {
        good &= check(ranks, gpu)?;
    }
    Ok(good)
}

/// What a step decided, as bits: found inf, overflow, norm, coefficient, factor, scale.
type Decision = [u64; 6];

fn of_report(report: &Report) -> Decision {
    let numbers = [report.total_norm, report.coefficient, report.factor, Some(report.scale.into())];
    decision(report.found_inf, report.overflow, numbers)
}

fn of_outcome(outcome: &Outcome, scale: f32) -> Decision {
    let norm = (outcome.overflow || !outcome.found_inf).then(|| outcome.total_norm.to_f64());
    let done = |number: R24| (!outcome.skipped).then(|| number.to_f64());
    let numbers = [norm, done(outcome.coefficient), done(outcome.factor), Some(scale.into())];
    decision(outcome.found_inf, outcome.overflow, numbers)
}

/// A number that there is none of is all ones, which no step computes.
fn decision(found_inf: bool, overflow: bool, numbers: [Option<f64>; 4]) -> Decision {
    let numbers = numbers.map(|number| number.map_or(u64::MAX, f64::to_bits));
    [found_inf.into(), overflow.into(), numbers[0], numbers[1], numbers[2], numbers[3]]
}

/// Brings every rank's bytes and decision to rank 0, and compares with those of a single process, which `want` computes
/// there. Complaints are rank 0's.
fn compare(
    ranks: &Ranks,
    name: &str,
    cuts: &Cuts,
    got: (&[u8], Decision),
    want: impl FnOnce() -> Fallible<(Vec<Vec<u8>>, Decision)>,
) -> Fallible<Option<String>> {
    let parts = ranks.gather(got.0)?;
    let decisions = ranks.gather(bytemuck::cast_slice(&got.1))?;
    if ranks.rank != 0 {
        return Ok(None);
    }
    let (want_bytes, want_decision) = want()?;
    for (rank, decision) in decisions.iter().enumerate() {
        if decision[..] != *bytemuck::cast_slice::<u64, u8>(&want_decision) {
            let got: Vec<u64> = decision.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
            return Ok(Some(format!("{name}: rank {rank} decided {got:x?}, one process {want_decision:x?}")));
        }
    }
    let Some(joined) = cuts.join(&parts) else {
        return Ok(Some(format!("{name}: a rank has not the bytes that it was given")));
    };
    let off = |t: &usize| joined[*t] != want_bytes[*t];
    Ok((0..joined.len()).find(off).map(|t| {
        let at = joined[t].iter().zip(&want_bytes[t]).position(|(a, b)| a != b);
        format!("{name}: tensor {t} differs from that of one process, first at byte {at:?}")
    }))
}
