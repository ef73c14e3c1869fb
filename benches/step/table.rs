//! The run as Markdown.

use std::fmt::Write as _;

use crate::record::Record;
use crate::row::{Row, Spread};
use crate::variant::Variant;

pub fn markdown(record: &Record) -> String {
    let mut out = String::new();
    let [read, write] = &record.limit_kernels;
    _ = writeln!(
        out,
        "Medians of {} rounds in turns. The limit: {read} to read, {write} to read and write.",
        record.rounds
    );
    for version in &record.pytorch {
        _ = writeln!(out, "PyTorch {} on {}, {} threads.", version.torch, version.device, version.threads);
    }
    _ = writeln!(out);
    summary(&mut out, record);
    let mut shapes: Vec<&Row> = Vec::new();
    for row in &record.results {
        if !shapes.iter().any(|s| s.shape == row.shape) {
            shapes.push(row);
        }
    }
    for first in shapes {
        shape(&mut out, record, first);
    }
    growth(&mut out, record);
    sets(&mut out, record);
    numbers(&mut out, record);
    out
}

/// One line a model, format and layout.
fn summary(out: &mut String, record: &Record) {
    let line = "| model | format | layout | step | limit | step / limit | / three passes | / per tensor | / PyTorch |";
    _ = writeln!(out, "### Steps with something to write\n\n{line}\n|{}", " --- |".repeat(9));
    for step in record.results.iter().filter(|r| r.variant == Variant::Step) {
        let limit = record.share_of_limit(step);
        let pytorch = [Variant::PytorchCuda, Variant::PytorchCpu]
            .into_iter()
            .find_map(|variant| record.ratio_to(step, variant));
        _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            name(step),
            step.format,
            step.layout.name(),
            milliseconds(best(step).median),
            limit.map_or("-".into(), |share| milliseconds(best(step).median * share)),
            ratio(limit.map(|share| 1.0 / share)),
            ratio(record.ratio_to(step, Variant::ThreePass)),
            ratio(record.ratio_to(step, Variant::PerTensorReadback)),
            ratio(pytorch),
        );
    }
}

/// Every variant over one model.
fn shape(out: &mut String, record: &Record, first: &Row) {
    let columns = "| format | layout | variant | wall ms (min to max) | GPU ms (min to max) | GB/s | of the limit \
        | / three passes | / per tensor | record us | with finish us |";
    let title =
        format!("{}: {} tensors, {:.1} M elements", name(first), first.tensors, first.elements as f64 / 1e6);
    _ = writeln!(out, "\n### {title}\n\n{columns}\n|{}", " --- |".repeat(11));
    for row in record.results.iter().filter(|r| r.shape == first.shape) {
        let both = row.record_us.zip(row.finish_us);
        _ = writeln!(
            out,
            "| {} | {} | `{}` | {} | {} | {:.1} | {} | {} | {} | {} | {} |",
            row.format,
            row.layout.name(),
            row.variant.name(),
            spread(Some(row.wall_ms)),
            spread(row.gpu_ms),
            row.gb_per_s,
            percent(record.share_of_limit(row)),
            ratio(record.ratio_to(row, Variant::ThreePass)),
            ratio(record.ratio_to(row, Variant::PerTensorReadback)),
            both.map_or("-".into(), |(record, _)| format!("{record:.0}")),
            both.map_or("-".into(), |(record, finish)| format!("{:.0}", record + finish)),
        );
    }
}

fn growth(out: &mut String, record: &Record) {
    if record.growth.is_empty() {
        return;
    }
    let columns = "| tensors | elements | layout | step | limit | step / limit | ns an element | us a tensor | record us |";
    _ = writeln!(out, "\n### How the time grows, f32\n\n{columns}\n|{}", " --- |".repeat(9));
    for step in record.growth.iter().filter(|r| r.variant == Variant::Step) {
        let share = record.share_of_limit(step);
        let time = best(step).median;
        _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.3} | {:.2} | {:.0} |",
            step.tensors,
            step.elements,
            step.layout.name(),
            milliseconds(time),
            share.map_or("-".into(), |share| milliseconds(time * share)),
            ratio(share.map(|share| 1.0 / share)),
            time * 1e6 / step.elements as f64,
            time * 1e3 / step.tensors as f64,
            step.record_us.unwrap_or_default(),
        );
    }
}

fn sets(out: &mut String, record: &Record) {
    let columns = "| gradients | layout | optimizers | build us | rebind us | record us | with finish us | memory | of the gradients |";
    _ = writeln!(out, "\n### What a set costs, f32\n\n{columns}\n|{}", " --- |".repeat(9));
    for row in &record.sets {
        _ = writeln!(
            out,
            "| {}, {} tensors | {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} KiB | {:.3} % |",
            scaled(&row.shape, row.scale_down),
            row.tensors,
            row.layout.name(),
            row.optimizers,
            row.build_us.median,
            row.rebind_us.median,
            row.record_us.median,
            row.record_us.median + row.finish_us.median,
            row.memory_bytes as f64 / 1024.0,
            row.memory_share * 100.0,
        );
    }
}

fn numbers(out: &mut String, record: &Record) {
    if record.numbers.is_empty() {
        return;
    }
    let columns = "| numbers | tensors | record us | finish us |";
    _ = writeln!(out, "\n### What recording costs, f32 in one arena\n\n{columns}\n|{}", " --- |".repeat(4));
    for row in &record.numbers {
        let us = |s: Spread| format!("{:.1} ({:.1} to {:.1})", s.median, s.min, s.max);
        let (record, finish) = (us(row.record_us), us(row.finish_us));
        _ = writeln!(out, "| {} | {} | {record} | {finish} |", row.numbers, row.tensors);
    }
}

/// The model's name, and how much smaller than the model it is.
pub fn name(row: &Row) -> String {
    scaled(&row.shape, row.scale_down)
}

fn scaled(shape: &str, scale_down: u64) -> String {
    match scale_down {
        1 => shape.to_owned(),
        n => format!("{shape} / {n}"),
    }
}

/// GPU time, or what the host saw.
pub fn best(row: &Row) -> Spread {
    row.gpu_ms.unwrap_or(row.wall_ms)
}

fn milliseconds(ms: f64) -> String {
    format!("{} ms", digits(ms))
}

/// Three that count.
fn digits(value: f64) -> String {
    let decimals = (2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 4.0) as usize;
    format!("{value:.decimals$}")
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or("-".into(), |s| format!("{} ({} to {})", digits(s.median), digits(s.min), digits(s.max)))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |r| format!("{} x", digits(r)))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |s| format!("{:.0} %", s * 100.0))
}
