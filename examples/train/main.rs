//! Trains a small network on 8x8 digits the way mixed-precision training should go: f16 gradients, two microbatches a
//! step, two optimizers under one dynamic loss scale, clipping fused into the optimizers. `train --help` says more.

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../conformance/adapters.rs"]
mod adapters;
mod args;
mod baseline;
mod chart;
mod clipping;
mod data;
mod kernels;
mod log;
mod model;
mod network;
mod optimizer;
mod plot;
mod progress;
mod reference;
mod rule;
mod table;
mod training;

use std::process::ExitCode;

use args::Args;
use clipping::Method;
use training::{Run, Settings, Trainer};

/// What a run has to reach on the test set.
const ACCURACY: f32 = 0.95;

fn main() -> ExitCode {
    let args = match args::parse() {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("train: {error}; `train --help` lists the options");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            // wgpu's errors have several lines.
            eprintln!("train: {}", error.split_whitespace().collect::<Vec<_>>().join(" "));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool, String> {
    let adapter = choose(adapters::named(args.adapter.as_deref().unwrap_or("all"))?)?;
    let gpu = adapters::open(&adapter)?;
    let split = data::Split::new()?;
    let adapter = adapters::label(&gpu.info);
    if args.baseline {
        println!("{adapter}");
        return baseline::run(&gpu.context, &split, args.rule, args.seed);
    }
    println!(
        "{adapter}: {} steps of {}, {} training and {} test images",
        args.steps,
        args.rule.name(),
        split.train.len(),
        split.test.len()
    );
    let scaler = training::eager_scale();
    let settings = Settings { rule: args.rule, steps: args.steps, seed: args.seed, scaler };
    let mut log = log::Log::create(&args.log)?;
    let mut runs: Vec<Run> = Vec::new();
    for method in std::iter::once(Method::Correct).chain(args.mistakes.iter().copied()) {
        let trainer = Trainer::new(&gpu.context, &split, &settings, method).map_err(|e| e.to_string())?;
        let mut bar = progress::Bar::new(method.name(), args.steps);
        runs.push(trainer.train(|report| bar.show(report), |row| log.row(method, row))?);
    }
    log.finish()?;
    log::make_folder(&args.svg)?;
    let chart = chart::draw(&runs, &settings, &adapter);
    std::fs::write(&args.svg, chart).map_err(|e| format!("{}: {e}", args.svg.display()))?;
    println!("{} and {} written", args.log.display(), args.svg.display());
    if runs.len() > 1 {
        println!("\n{}", table::table(&runs));
    }
    let correct = &runs[0];
    println!("accuracy {:.3}, skipped {} of {}", correct.accuracy(), correct.skipped(), correct.rows.len());
    Ok(correct.accuracy() > ACCURACY && correct.skipped() > 0)
}

/// A real GPU before a software one, and Vulkan, Metal or DX12 before GL.
fn choose(adapters: Vec<gradclip::wgpu::Adapter>) -> Result<gradclip::wgpu::Adapter, String> {
    use gradclip::wgpu::{Backend, DeviceType};
    let rank = |adapter: &gradclip::wgpu::Adapter| {
        let info = adapter.get_info();
        let kind = match info.device_type {
            DeviceType::DiscreteGpu => 0,
            DeviceType::IntegratedGpu => 1,
            DeviceType::VirtualGpu => 2,
            DeviceType::Other => 3,
            DeviceType::Cpu => 4,
        };
        (kind, info.backend == Backend::Gl)
    };
    adapters.into_iter().min_by_key(rank).ok_or_else(|| adapters::NO_ADAPTER.into())
}
