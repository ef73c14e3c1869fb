//! One step over the gradients of a safetensors file: unscale, look for inf and NaN, measure one norm, clip.
//!
//! `clip FILE.safetensors --scale S --max-norm M [--eps E] [--prefix P] [-o OUT.safetensors] [--adapter NAME] [--cpu]`
//!
//! Without arguments: recorded gradients of PyTorch. Exit status: 0 done, 1 the GPU differs from the CPU
//! reference, 2 an error, 3 the step is skipped (inf, NaN or overflow) and the tensors are as they were.

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../conformance/adapters.rs"]
mod adapters;
mod arguments;
mod on_gpu;
mod outcome;
mod summary;
mod tensors;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use adapters::Gpu;
use gradclip::wgpu;

fn main() -> ExitCode {
    hush();
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("clip: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let Some(args) = arguments::parse()? else {
        show(arguments::HELP)?;
        return Ok(ExitCode::SUCCESS);
    };
    let from = tensors::read(&args.file, &args.prefix)?;
    let gpu = if args.cpu { Err("none, as --cpu asks".into()) } else { open(args.adapter.as_deref())? };

    let start = Instant::now();
    let reference = outcome::on_reference(&from.tensors, args.scale, args.clip);
    let mut run = summary::Run {
        adapter: gpu.as_ref().map_or_else(String::clone, |gpu| adapters::label(&gpu.info)),
        gpu: None,
        reference: start.elapsed(),
        difference: None,
    };
    let outcome = match &gpu {
        Err(_) => reference,
        Ok(gpu) => {
            let (outcome, times) = on_gpu::step(&gpu.context, &from.tensors, args.scale, args.clip)?;
            run.gpu = Some(times);
            run.difference = outcome::difference(&from.tensors, &outcome, &reference);
            outcome
        }
    };
    if let (Some(out), None) = (&args.out, &run.difference) {
        tensors::write(out, &from, &outcome.results)?;
    }
    show(&summary::text(&args, &from, &outcome, &run))?;
    Ok(match (run.difference, outcome.found_inf) {
        (Some(_), _) => ExitCode::FAILURE,
        (None, true) => ExitCode::from(3),
        (None, false) => ExitCode::SUCCESS,
    })
}

/// The adapter of that name, or the best one. Inner error: there is none, so the CPU has to do.
fn open(name: Option<&str>) -> Result<Result<Gpu, String>, String> {
    let mut candidates = match name {
        Some(name) => adapters::named(name)?,
        None => adapters::all(),
    };
    candidates.sort_by_key(|adapter| rank(&adapter.get_info()));
    let mut why = adapters::NO_ADAPTER.to_owned();
    for adapter in &candidates {
        match adapters::open(adapter) {
            Ok(gpu) => return Ok(Ok(gpu)),
            Err(error) => why = error,
        }
    }
    if name.is_some() {
        Err(why)
    } else {
        Ok(Err(format!("none, so the CPU reference does the work: {why}")))
    }
}

/// Hardware before software; GL last, because it compiles kernels slowly.
fn rank(info: &wgpu::AdapterInfo) -> (u8, bool) {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    };
    (kind, info.backend == wgpu::Backend::Gl)
}

/// Without `XDG_RUNTIME_DIR` the Wayland library prints a line of its own for every GL adapter that is looked for.
fn hush() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: no other thread runs yet. The folder need not exist: nothing is to be found there.
        unsafe { std::env::set_var("XDG_RUNTIME_DIR", "/nonexistent") };
    }
}

fn show(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that closed the pipe early wants no more.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("stdout: {error}")),
        _ => Ok(()),
    }
}
