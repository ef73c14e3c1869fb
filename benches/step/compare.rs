//! What moved since an older run.

use std::fmt::Write as _;

use crate::record::Record;
use crate::row::Row;
use crate::table::{best, name};

/// Smaller moves than this are noise, whatever the samples say.
const NOISE: f64 = 0.05;

/// The rows whose median moved out of the other run's samples.
pub fn compare(old: &Record, new: &Record) -> String {
    let mut out = String::from("### Against the older run\n\n");
    if old.environment != new.environment {
        out += "The two ran on different adapters, drivers or crate versions:\n";
        for (which, record) in [("old", old), ("new", new)] {
            _ = writeln!(out, "- {which}: {}, {}", record.date, record.environment);
        }
        out += "\n";
    }
    let (mut moved, mut same, mut missing) = (Vec::new(), 0, 0);
    for row in new.results.iter().chain(&new.growth) {
        let before = old
            .results
            .iter()
            .chain(&old.growth)
            .find(|before| before.variant == row.variant && before.beside(row));
        match before {
            Some(before) if has_moved(before, row) => moved.push((row, before)),
            Some(_) => same += 1,
            None => missing += 1,
        }
    }
    moved.sort_by(|a, b| a.0.ratio(a.1).total_cmp(&b.0.ratio(b.1)));
    if !moved.is_empty() {
        out += "| model | format | layout | variant | old ms | new ms | new / old |\n|";
        out += &" --- |".repeat(7);
        out += "\n";
    }
    for (row, before) in &moved {
        _ = writeln!(
            out,
            "| {} | {} | {} | `{}` | {:.3} | {:.3} | {:.2} |",
            name(row),
            row.format,
            row.layout.name(),
            row.variant.name(),
            best(before).median,
            best(row).median,
            row.ratio(before),
        );
    }
    _ = writeln!(
        out,
        "\n{} rows moved by more than {:.0} % and out of the older samples, {same} did not, {missing} are new.",
        moved.len(),
        NOISE * 100.0
    );
    out
}

fn has_moved(before: &Row, now: &Row) -> bool {
    let by = now.ratio(before);
    let (before, now) = (best(before), best(now).median);
    (by - 1.0).abs() > NOISE && !(before.min..=before.max).contains(&now)
}
