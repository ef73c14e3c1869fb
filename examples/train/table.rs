//! The runs side by side.

use std::fmt::Write as _;

use crate::clipping::{MAX_NORM, Method};
use crate::model::OPTIMIZERS;
use crate::training::{Norms, Run};

/// Steps at the end over which the loss is averaged.
const TAIL: usize = 50;

pub fn table(runs: &[Run]) -> String {
    let mut out = String::from(
        "run            accuracy  loss at end  skipped     largest norm after  seconds  what it does\n",
    );
    for run in runs {
        let tail = &run.rows[run.rows.len().saturating_sub(TAIL)..];
        let loss = tail.iter().map(|row| f64::from(row.loss)).sum::<f64>() / tail.len() as f64;
        let largest = norms(run).map(|n| n.after).fold(0.0, f64::max);
        _ = writeln!(
            out,
            "{:<15}{:<10.3}{:<13.4}{:<12}{:<20}{:<9.1}{}",
            run.method.name(),
            run.accuracy(),
            loss,
            format!("{} of {}", run.skipped(), run.rows.len()),
            if largest == 0.0 {
                "none".into()
            } else if largest < 0.001 {
                format!("{largest:.0e}")
            } else {
                format!("{largest:.3}")
            },
            run.seconds,
            effect(run)
        );
    }
    out
}

fn norms(run: &Run) -> impl Iterator<Item = Norms> {
    let optimizers = 0..OPTIMIZERS.len();
    run.rows.iter().flat_map(move |row| optimizers.clone().filter_map(|o| row.norms(o)))
}

fn effect(run: &Run) -> String {
    match run.method {
        Method::Correct => format!("one norm an optimizer, at most {MAX_NORM} after, direction kept"),
        Method::WrongOrder => {
            let mean = run.rows.iter().map(|row| f64::from(row.scale()).log2()).sum::<f64>();
            format!("limit divided by the loss scale, about 2^{:.0}", mean / run.rows.len() as f64)
        }
        Method::PerTensor => {
            let (mut angle, mut count) = (0.0, 0);
            for norms in norms(run).filter(|n| n.after < n.before) {
                angle += norms.cosine.min(1.0).acos().to_degrees();
                count += 1;
            }
            format!(
                "limit exceeded, gradient turned by {:.1} degrees when it clips",
                angle / f64::from(count.max(1))
            )
        }
        Method::PerMicrobatch => {
            // The early steps come after those of the optimizers.
            let early = run.rows.iter().flat_map(|row| &row.report.steps[row.optimizer_of.len()..]);
            let (mut sum, mut count) = (0.0, 0);
            for coefficient in early.filter(|s| s.report.clipped).filter_map(|s| s.report.coefficient) {
                sum += coefficient;
                count += 1;
            }
            let weight = if count > 0 { sum / f64::from(count) } else { 1.0 };
            format!("first microbatch counts {weight:.2} of the second when it clips")
        }
    }
}
