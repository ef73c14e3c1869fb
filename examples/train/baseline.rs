//! The first steps beside an f64 computation of the same network on the CPU.

use std::time::Duration;

use gradclip::{Context, ScalerConfig};

use crate::clipping::{MAX_NORM, Method};
use crate::data::Split;
use crate::model::{self, LAYERS, OPTIMIZERS};
use crate::reference::{Optimizers, Parameters, backward};
use crate::rule::Rule;
use crate::training::{Settings, Trainer, read};

const STEPS: usize = 5;
/// Small enough that no step is skipped, since f64 would not skip it.
const SCALE: f32 = 1024.0;
/// Allowed difference of norms: f16 activations and gradients have 11 bits.
const NORMS: f64 = 0.02;

/// Allowed distance of the weights from those in f64, as a share of the way that they went. AdamW's first steps have
/// about the size of the learning rate whatever the gradient, so where rounding turns a tiny gradient around, it shows.
fn allowed(rule: Rule) -> f64 {
    match rule {
        Rule::Sgd => 0.05,
        Rule::AdamW => 0.25,
    }
}
/// Layer and output and input of the weights that are shown.
const SHOWN: [(usize, usize, usize); 3] = [(0, 3, 27), (1, 5, 11), (2, 7, 30)];

/// Whether both agree.
pub fn run(gpu: &Context, split: &Split, rule: Rule, seed: u64) -> Result<bool, String> {
    let text = |e: gradclip::Error| e.to_string();
    let scaler = ScalerConfig { init_scale: SCALE, ..ScalerConfig::default() };
    let settings = Settings { rule, steps: STEPS, seed, scaler };
    let mut trainer = Trainer::new(gpu, split, &settings, Method::Correct).map_err(text)?;
    let start: Parameters =
        model::initial(seed).iter().map(|layer| layer.iter().map(|&w| f64::from(w)).collect()).collect();
    let mut wanted = start.clone();
    let mut optimizers = Optimizers::new(rule, &wanted);
    let (mut worst_norm, mut worst_way) = (0f64, 0f64);

    println!("{:<5}{:<32}{:>15}{:>15}  difference", "step", rule.name(), "GPU, f16", "CPU, f64");
    for step in 1..=STEPS {
        let rows = trainer.step().map_err(text)?;
        let report = trainer.scaler.wait_report(Duration::from_secs(60)).map_err(text)?;
        let report = report.ok_or("a report is missing")?;
        let (_, gradients) = backward(&wanted, &split.train, &rows);
        let norms = optimizers.step(&mut wanted, &gradients, f64::from(MAX_NORM));
        let row = |what: String, gpu: f64, cpu: f64, difference: f64| {
            println!("{step:<5}{what:<32}{gpu:>15.8}{cpu:>15.8}  {difference:.1e}");
        };
        for ((set, cpu), (name, _)) in report.steps.iter().zip(norms).zip(OPTIMIZERS) {
            let gpu = set.report.total_norm.ok_or("a gradient is not finite")?;
            let difference = (gpu - cpu).abs() / cpu;
            row(format!("norm of {name}"), gpu, cpu, difference);
            worst_norm = worst_norm.max(difference);
        }
        let masters: Result<Vec<Vec<f32>>, String> =
            trainer.network.layers.iter().map(|layer| read(gpu, &layer.master)).collect();
        let masters = masters?;
        for (layer, output, input) in SHOWN {
            let i = output * LAYERS[layer].0 + input;
            let (gpu, cpu) = (f64::from(masters[layer][i]), wanted[layer][i]);
            row(
                format!("layer{}.weight[{output}][{input}]", layer + 1),
                gpu,
                cpu,
                (gpu - cpu).abs() / cpu.abs(),
            );
        }
        let (moved, apart) = movement(&start, &wanted, &masters);
        println!("{step:<5}way of all weights so far{:>37.8}  {:.1e} of it apart", moved, apart / moved);
        worst_way = worst_way.max(apart / moved);
    }
    let good = worst_norm < NORMS && worst_way < allowed(rule);
    println!(
        "{}: norms differ by at most {worst_norm:.1e} (allowed {NORMS}), ways of the weights by {worst_way:.1e} ({})",
        if good { "they agree" } else { "they DIFFER" },
        allowed(rule)
    );
    Ok(good)
}

/// How far the f64 parameters went, and how far those of the GPU are from them.
fn movement(start: &Parameters, wanted: &Parameters, got: &[Vec<f32>]) -> (f64, f64) {
    let (mut moved, mut apart) = (0.0, 0.0);
    for ((start, wanted), got) in
        start.iter().flatten().zip(wanted.iter().flatten()).zip(got.iter().flatten())
    {
        moved += (wanted - start).powi(2);
        apart += (f64::from(*got) - wanted).powi(2);
    }
    (moved.sqrt(), apart.sqrt())
}
