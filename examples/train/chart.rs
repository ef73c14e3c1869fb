//! The chart of a training run, as SVG.

use std::fmt::Write as _;

use crate::clipping::{MAX_NORM, Method};
use crate::model::OPTIMIZERS;
use crate::plot::{LEFT, Panel, RIGHT, Scale};
use crate::training::{Norms, Row, Run, Settings};

/// Steps of the running mean that smooths the loss.
const SMOOTH: usize = 15;

// The colours of Okabe and Ito, which colour-blind readers can tell apart.
const STYLE: &str = "<style>
text { font: 12px Helvetica, Arial, sans-serif; fill: #333 }
.title { font-size: 19px; font-weight: bold; fill: #000 }
.panel { font-size: 13.5px; font-weight: bold; fill: #000 }
.power { font-size: 9px }
.end { text-anchor: end }
.middle { text-anchor: middle }
path { fill: none; stroke-linejoin: round }
.axis { fill: none; stroke: #666 }
.grid { stroke: #e4e4e4 }
.correct { stroke: #0072b2; stroke-width: 1.8 }
.wrong-order { stroke: #d55e00; stroke-width: 1.8 }
.per-tensor { stroke: #009e73; stroke-width: 1.8; stroke-dasharray: 7 3 }
.per-microbatch { stroke: #cc79a7; stroke-width: 1.8; stroke-dasharray: 2 3 }
.raw { stroke: #a9cfe6; stroke-width: 1 }
.before { stroke: #e69f00; stroke-width: 1.2 }
.after { stroke: #0072b2; stroke-width: 1.2 }
.limit { stroke: #555; stroke-dasharray: 6 4 }
.skipped { stroke: #cc1111; stroke-width: 1; stroke-opacity: .45 }
.sample { stroke-width: 2.4; stroke-opacity: 1 }
</style>";

pub fn draw(runs: &[Run], settings: &Settings, adapter: &str) -> String {
    let (correct, steps) = (&runs[0], settings.steps);
    let bottom = 1180.0;
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {bottom}" width="960" height="{bottom}" role="img">
<title>Mixed-precision training with gradclip</title>
{STYLE}
<rect width="960" height="{bottom}" fill="#fff"/>
<text x="{LEFT}" y="34" class="title">Mixed-precision training with global-norm clipping</text>
<text x="{LEFT}" y="54">{}</text>
<text x="{LEFT}" y="71">{}</text>
<text x="{LEFT}" y="88">Test accuracy {:.3}. {} of {steps} steps skipped. {:.0} % of the optimizers' steps clipped.</text>
"##,
        escape(&format!(
            "8x8 digits, f16 gradients, {} on f32 weights, 2 microbatches of 64, 2 optimizers, seed {}",
            settings.rule.name(),
            settings.seed
        )),
        escape(adapter),
        correct.accuracy(),
        correct.skipped(),
        correct.rows.last().map_or(0.0, |row| 100.0 * row.report.clip_rate),
    );
    loss(&mut out, (130.0, 190.0), runs, steps);
    accuracy(&mut out, (372.0, 130.0), runs, steps);
    loss_scale(&mut out, (554.0, 150.0), correct, steps);
    for (i, (name, _)) in OPTIMIZERS.iter().enumerate() {
        norm(&mut out, (756.0 + 202.0 * i as f64, 150.0), correct, steps, i, name);
    }
    _ = writeln!(
        out,
        r#"<text x="{:.1}" y="{:.1}" class="middle">optimizer step</text>
<text x="{LEFT}" y="{:.1}">Norm after = norm before × clip coefficient, which the fused optimizers multiply by; gaps: steps that the optimizer skipped.</text>
</svg>"#,
        f64::midpoint(LEFT, RIGHT),
        bottom - 36.0,
        bottom - 12.0
    );
    out
}

fn class(method: Method) -> &'static str {
    match method {
        Method::Correct => "correct",
        Method::WrongOrder => "wrong-order",
        Method::PerTensor => "per-tensor",
        Method::PerMicrobatch => "per-microbatch",
    }
}

fn loss(out: &mut String, place: (f64, f64), runs: &[Run], steps: usize) {
    let all = runs.iter().flat_map(|run| run.rows.iter().map(|row| f64::from(row.loss)));
    let mut panel = Panel::new(out, place, "Training loss", steps, Scale::Log10, all);
    panel.line("raw", values(&runs[0], |row| Some(f64::from(row.loss))));
    for run in runs.iter().rev() {
        let mean = |middle: usize| {
            let half = SMOOTH / 2;
            let window = &run.rows[middle.saturating_sub(half)..(middle + half + 1).min(run.rows.len())];
            window.iter().map(|row| f64::from(row.loss)).sum::<f64>() / window.len() as f64
        };
        panel.line(class(run.method), (0..run.rows.len()).map(|step| (step, Some(mean(step)))));
    }
    for run in runs.iter().skip(1).rev() {
        panel.legend(class(run.method), run.method.name());
    }
    let name = if runs.len() > 1 { "correct, " } else { "" };
    panel.legend(class(Method::Correct), &format!("{name}mean of {SMOOTH} steps"));
    panel.legend("raw", "each step");
}

fn accuracy(out: &mut String, place: (f64, f64), runs: &[Run], steps: usize) {
    let all = runs.iter().flat_map(|run| run.rows.iter().filter_map(|row| row.test_accuracy.map(f64::from)));
    let mut panel = Panel::new(out, place, "Test accuracy", steps, Scale::Linear, all);
    panel.level("limit", f64::from(crate::ACCURACY));
    for run in runs.iter().rev() {
        let evaluated = run.rows.iter().enumerate().filter(|(_, row)| row.test_accuracy.is_some());
        panel.line(
            class(run.method),
            evaluated.map(|(step, row)| (step + 1, row.test_accuracy.map(f64::from))),
        );
    }
    panel.legend("limit", &format!("goal {}", crate::ACCURACY));
    for run in runs.iter().rev().filter(|_| runs.len() > 1) {
        panel.legend(class(run.method), run.method.name());
    }
}

fn loss_scale(out: &mut String, place: (f64, f64), run: &Run, steps: usize) {
    let all = run.rows.iter().map(|row| f64::from(row.scale()));
    let mut panel = Panel::new(out, place, "Loss scale", steps, Scale::Log2, all);
    panel
        .marks("skipped", run.rows.iter().enumerate().filter(|(_, row)| row.skipped()).map(|(step, _)| step));
    panel.staircase("correct", run.rows.iter().map(|row| f64::from(row.scale())));
    panel.legend("skipped", "step skipped: inf or NaN in a gradient");
}

fn norm(out: &mut String, place: (f64, f64), run: &Run, steps: usize, optimizer: usize, name: &str) {
    let of = move |what: fn(Norms) -> f64| move |row: &Row| row.norms(optimizer).map(what);
    let (before, after) = (of(|n| n.before), of(|n| n.after));
    let all = run.rows.iter().filter_map(before).chain([f64::from(MAX_NORM)]);
    let title = format!("Gradient norm, {name}");
    let mut panel = Panel::new(out, place, &title, steps, Scale::Log10, all);
    let skipped = run.rows.iter().enumerate().filter(|(_, row)| row.norms(optimizer).is_none());
    panel.marks("skipped", skipped.map(|(step, _)| step));
    panel.line("before", values(run, before));
    panel.level("limit", f64::from(MAX_NORM));
    panel.line("after", values(run, after));
    panel.legend("skipped", "skipped");
    panel.legend("limit", &format!("max_norm {MAX_NORM}"));
    panel.legend("after", "after clipping");
    panel.legend("before", "before");
}

fn values<'a>(
    run: &'a Run,
    value: impl Fn(&Row) -> Option<f64> + 'a,
) -> impl Iterator<Item = (usize, Option<f64>)> + 'a {
    run.rows.iter().enumerate().map(move |(step, row)| (step, value(row)))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
