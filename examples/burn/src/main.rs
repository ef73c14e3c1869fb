//! Trains a small convolutional network on real 8x8 digits with Burn, and clips its gradients by one global norm, in
//! Burn's own buffers. `--help` says more.

mod digits;
mod overhead;

use std::process::ExitCode;

use digits::comparison::{Step, compare, ways};
use digits::gpu::{self, Gpu};
use digits::model::Net;
use digits::oracle;
use digits::training::{Batch, Clipping, MAX_NORM, Trainer, batches};
use gradclip_burn_example::Clipper;

const HELP: &str = "\
Trains a small convolutional network on 8x8 digits with Burn. gradclip clips the gradients where they lie, by one norm.

usage: gradclip-burn-example [OPTIONS]

  --steps N       steps that are compared with the CPU reference (default 20)
  --timed N       steps that are timed by each way of clipping (default 30; 0: none)
  --adapter NAME  use an adapter whose description contains NAME
  -h, --help      print this

Exit status: 0; 1 if a check failed; 2 for bad arguments, no adapter and other errors.";

struct Args {
    steps: usize,
    timed: usize,
    adapter: String,
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("gradclip-burn-example: {error}; --help lists the options");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("gradclip-burn-example: {error}");
            ExitCode::from(2)
        }
    }
}

/// `None`: help was asked for.
fn parse() -> Result<Option<Args>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut args = Args { steps: 20, timed: 30, adapter: "all".into() };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("steps") => {
                args.steps = parser.value()?.parse_with(|text| match text.parse() {
                    Ok(steps @ 2..=10_000) => Ok(steps),
                    _ => Err("steps must be from 2 to 10000"),
                })?;
            }
            Long("timed") => args.timed = parser.value()?.parse()?,
            Long("adapter") => args.adapter = parser.value()?.string()?,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(args))
}

fn run(args: &Args) -> Result<bool, String> {
    let gpu = gpu::open(&gpu::adapter(&args.adapter)?)?;
    let fusion = if cfg!(feature = "fusion") { "on" } else { "off" };
    println!("Burn 0.22 on {}, fusion {fusion}", gpu.name);
    let model = Net::seeded(&gpu.device, 1);
    let timed = if args.timed > 0 { args.timed + overhead::WARM_UP } else { 0 };
    let batches = batches(args.steps.max(timed), &gpu.device)?;
    let mut checks = Checks::default();

    println!("\nstep  loss    norm        coefficient  reference's norm");
    let steps = compare(&gpu, &model, &batches[..args.steps], |i, step| {
        let number = |n: Option<f64>| n.map_or("none".into(), |n| format!("{n:.8}"));
        let (norm, coefficient) = (number(step.report.total_norm), number(step.report.coefficient));
        println!("{i:<6}{:<8.4}{norm:<12}{coefficient:<13}{}", step.loss, number(step.reference_norm));
    })?;
    println!();
    compared(&mut checks, &steps);
    differs(&mut checks, &gpu, &model, &batches[0])?;
    nan(&mut checks, &gpu, &model, &batches)?;
    if args.timed > 0 {
        println!("\nmedian time of a step, {} steps each, in turns, on {}", args.timed, gpu.name);
        for (way, time) in overhead::medians(&gpu, &model, &batches[..timed])? {
            println!("  {way:<38}{:>8.2} ms", time.as_secs_f64() * 1e3);
        }
    }
    Ok(checks.failed == 0)
}

/// A line for each.
#[derive(Default)]
struct Checks {
    failed: usize,
}

impl Checks {
    fn check(&mut self, good: bool, what: &str) {
        println!("{:<8}{what}", if good { "ok" } else { "FAILED" });
        self.failed += usize::from(!good);
    }
}

fn compared(checks: &mut Checks, steps: &[Step]) {
    let all = |good: fn(&Step) -> bool| steps.iter().all(good);
    checks.check(
        all(|s| s.report.total_norm.map(f64::to_bits) == s.reference_norm.map(f64::to_bits)),
        "the norm of each step is that of the CPU reference over the gradients read back, on every bit",
    );
    checks.check(all(|s| s.gradients_equal), "the clipped gradients are the reference's, on every bit");
    checks.check(
        all(|s| s.parameters_equal),
        "the parameters are those of the run that the reference clipped, on every bit",
    );
    checks.check(all(|s| !s.copied), "every gradient was written where Burn had it");
    let clipped = steps.iter().filter(|s| s.report.clipped).count();
    checks.check(clipped > 0, &format!("{clipped} of {} steps were clipped to {MAX_NORM}", steps.len()));
    let mean = |steps: &[Step]| steps.iter().map(|s| s.loss).sum::<f32>() / steps.len() as f32;
    let (first, second) = steps.split_at(steps.len() / 2);
    let (first, second) = (mean(first), mean(second));
    checks.check(
        second < first,
        &format!("the loss falls: {first:.4} in the first half, {second:.4} in the second"),
    );
}

/// Burn's own clipping bounds each parameter, and so not the step.
fn differs(checks: &mut Checks, gpu: &Gpu, model: &Net, batch: &Batch) -> Result<(), String> {
    let [ours, burns, none] = ways(gpu, model, batch)?;
    println!("\nfirst step, limit {MAX_NORM}                norm of the gradient  of the update");
    for (name, way) in [("gradclip, one norm", &ours), ("Burn's, per parameter", &burns), ("none", &none)] {
        println!("  {name:<36}{:<22.6}{:.6}", way.gradient, way.update);
    }
    let limit = f64::from(MAX_NORM);
    checks.check(
        ours.gradient <= limit * (1.0 + 2f64.powi(-22)) && burns.gradient > limit,
        "one norm keeps the gradient within the limit, a norm for each parameter does not",
    );
    checks.check(ours.parameters != burns.parameters, "so the parameters differ");
    Ok(())
}

/// Two batches, of which the second is NaN.
fn nan(checks: &mut Checks, gpu: &Gpu, model: &Net, batches: &[Batch]) -> Result<(), String> {
    let mut trainer = Trainer::new(model, Clipping::GlobalAwaited(Clipper::new(&gpu.context)));
    let (_, grads) = trainer.backward(&batches[0]);
    trainer.apply(grads)?;
    let before = oracle::parameters(&trainer.model);
    let (_, grads) = trainer.backward(&batches[1].with_nan());
    let stepped = trainer.apply(grads)?;
    let unchanged = oracle::parameters(&trainer.model) == before;
    println!();
    if let Clipping::GlobalAwaited(clipper) = &trainer.clipping {
        let report = clipper.report().map_err(|e| e.to_string())?;
        let bad: Vec<_> = report.bad_tensors().map(|bad| bad.name.as_str()).collect();
        println!("images that are NaN: NaN in the gradients of {}", bad.join(", "));
    }
    checks.check(!stepped && unchanged, "the step with NaN was skipped, and no parameter changed");
    Ok(())
}
