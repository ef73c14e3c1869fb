//! What a person reads.

use std::fmt::Write as _;
use std::time::Duration;

use gradclip::Format;

use super::arguments::Arguments;
use super::on_gpu::Times;
use super::outcome::Outcome;
use super::tensors::{Tensor, Tensors};

/// Who computed, and what came of the comparison.
pub struct Run {
    /// The adapter, or why there is none.
    pub adapter: String,
    /// The GPU's times, if there is one.
    pub gpu: Option<Times>,
    pub reference: Duration,
    /// How GPU and reference differ.
    pub difference: Option<String>,
}

/// The report, a fact a line.
pub fn text(args: &Arguments, from: &Tensors, outcome: &Outcome, run: &Run) -> String {
    let mut text = String::new();
    let mut row = |label: &str, value: String| {
        let _ = writeln!(text, "{label:<14}{value}");
    };
    let tensors = &from.tensors;
    let elements: u64 = tensors.iter().map(Tensor::len).sum();
    let bytes: usize = tensors.iter().map(|t| t.bytes.len()).sum();
    row("file", args.file.display().to_string());
    row("adapter", run.adapter.clone());
    row("tensors", tensor_count(args, from));
    row("elements", format!("{} ({} bytes)", grouped(elements), grouped(bytes as u64)));
    row("scale", number(args.scale.get().into()));
    row(
        "max_norm",
        format!("{}, eps {}", number(args.clip.max_norm().into()), number(args.clip.eps().into())),
    );
    match outcome.norm {
        Some(norm) => row("norm before", number(norm)),
        None => row("norm before", "none: something is not finite".into()),
    }
    match outcome.norm_after {
        Some(norm) => row("norm after", format!("{} (measured)", number(norm))),
        None => row("norm after", "not measured: nothing changed".into()),
    }
    match (outcome.coefficient, outcome.factor) {
        (Some(coefficient), Some(factor)) => {
            row("coefficient", format!("{}, factor {}", number(coefficient), number(factor)));
        }
        _ => row("coefficient", "none: the step is skipped".into()),
    }
    let mut bad = tensors.iter().zip(&outcome.nonfinite).filter(|(_, n)| n.first.is_some()).peekable();
    if bad.peek().is_none() {
        row("nonfinite", "none".into());
    }
    for (tensor, nonfinite) in bad {
        row("nonfinite", format!("{}: {nonfinite}", shown(&tensor.name)));
    }
    row("result", verdict(outcome).into());
    let reference = format!("CPU reference {}", milliseconds(run.reference));
    match &run.gpu {
        Some(Times { prepare, step }) => {
            let (prepare, step) = (milliseconds(*prepare), milliseconds(*step));
            row("time", format!("GPU step {step} after {prepare} of upload and compilation, {reference}"));
        }
        None => row("time", reference),
    }
    match (&run.difference, &run.gpu) {
        (Some(difference), _) => row("agreement", format!("NO, the GPU differs: {difference}")),
        (None, Some(_)) => row("agreement", "the GPU equals the CPU reference on every bit".into()),
        (None, None) => row("agreement", "not checked: the CPU reference ran alone".into()),
    }
    match (&args.out, &run.difference) {
        (Some(out), None) => row("wrote", format!("{} ({} tensors)", out.display(), tensors.len())),
        (Some(out), Some(_)) => row("wrote", format!("nothing: {} would hold wrong bits", out.display())),
        (None, _) => {}
    }
    text
}

fn verdict(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome { overflow: true, .. } => {
            "skipped, a result would overflow its format; every gradient is as it was"
        }
        Outcome { found_inf: true, .. } => "skipped, found inf or NaN; every gradient is as it was",
        Outcome { coefficient: Some(coefficient), .. } if *coefficient < 1.0 => "unscaled and clipped",
        Outcome { factor, .. } if *factor != Some(1.0) => "unscaled; the norm is within the limit",
        _ => "unchanged; the norm is within the limit",
    }
}

fn tensor_count(args: &Arguments, from: &Tensors) -> String {
    let kinds: Vec<String> = Format::ALL
        .iter()
        .map(|&format| (format, from.tensors.iter().filter(|t| t.format == format).count()))
        .filter(|&(_, count)| count > 0)
        .map(|(format, count)| format!("{count} {format}"))
        .collect();
    let (chosen, kinds) = (from.tensors.len(), kinds.join(", "));
    if args.prefix.is_empty() {
        return format!("{chosen} ({kinds})");
    }
    format!("{chosen} of {} ({kinds}), prefix {}", from.in_file, shown(&args.prefix))
}

/// A name in one line, whatever it holds.
fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

/// The shortest digits that identify the number: as f32 if it is one.
fn number(value: f64) -> String {
    let narrow = value as f32;
    let plain = value == 0.0 || value.is_infinite() || (1e-4..1e9).contains(&value);
    match (f64::from(narrow) == value, plain) {
        (true, true) => narrow.to_string(),
        (true, false) => format!("{narrow:e}"),
        (false, _) => format!("{value:e}"),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn milliseconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}
