//! What moved since an older run.

use std::fmt::Write as _;

use crate::record::Record;
use crate::row::Row;
use crate::table::name;

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
    if old.cut != new.cut {
        _ = writeln!(out, "The probe chose another cut: {:?}, before {:?}.\n", new.cut, old.cut);
    }
    if old.limit_kernels != new.limit_kernels {
        let [a, b] = [&new.limit_kernels, &old.limit_kernels].map(|kernels| kernels.join(" and "));
        _ = writeln!(out, "The limit was measured by other kernels: {a}, before {b}.\n");
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
            before.spread_beside(row).median,
            row.spread_beside(before).median,
            row.ratio(before),
        );
    }
    let gone = old.results.iter().chain(&old.growth).count() - moved.len() - same;
    _ = writeln!(
        out,
        "\n{} rows moved by more than {:.0} % and out of the older samples, {same} did not, {missing} are new, {gone} are gone.",
        moved.len(),
        NOISE * 100.0
    );
    out
}

fn has_moved(before: &Row, now: &Row) -> bool {
    let by = now.ratio(before);
    let (before, now) = (before.spread_beside(now), now.spread_beside(before).median);
    (by - 1.0).abs() > NOISE && !(before.min..=before.max).contains(&now)
}
