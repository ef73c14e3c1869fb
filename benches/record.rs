//! Microseconds to record a step of 300 tensors: in 300 buffers, and in one arena.
//!
//! `cargo bench --bench record -- [--adapter NAME] [--rounds N]`

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../examples/conformance/adapters.rs"]
mod adapters;

use std::time::{Duration, Instant};

use gradclip::{ClipNorm, Context, Format, GradSet, LossScale, TensorSlice, wgpu};

const TENSORS: u64 = 300;
const ELEMENTS: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use lexopt::prelude::*;
    let (mut adapter, mut rounds) = (None, 201);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("adapter") => adapter = Some(parser.value()?.string()?),
            Long("rounds") => rounds = parser.value()?.parse()?,
            Long("bench") => {}
            _ => return Err(arg.unexpected().into()),
        }
    }
    if !std::env::args().any(|a| a == "--bench") {
        rounds = 1;
    }
    let adapters = match &adapter {
        Some(name) => adapters::named(name)?,
        None => adapters::named("all")?.into_iter().take(1).collect(),
    };
    for adapter in adapters {
        let gpu = adapters::open(&adapter)?;
        println!("{}", adapters::label(&adapter.get_info()));
        measure(&gpu.context, rounds)?;
    }
    Ok(())
}

fn measure(gpu: &Context, rounds: usize) -> Result<(), Box<dyn std::error::Error>> {
    let own: Vec<wgpu::Buffer> = (0..TENSORS).map(|_| buffer(gpu, ELEMENTS * 4)).collect();
    let arena = buffer(gpu, TENSORS * ELEMENTS * 4);
    let slice = |buffer, offset| TensorSlice { buffer, offset, len: ELEMENTS, format: Format::F32 };
    let mut scattered = GradSet::builder("300 buffers");
    let mut together = GradSet::builder("one arena");
    for (i, buffer) in own.iter().enumerate() {
        scattered = scattered.tensor(i.to_string(), slice(buffer, 0));
        together = together.tensor(i.to_string(), slice(&arena, i as u64 * ELEMENTS * 4));
    }
    let sets = [scattered.build(gpu)?, together.build(gpu)?];
    let (scale, clip) = (LossScale::new(1024.0)?, Some(ClipNorm::new(1.0)?));
    let mut times: [Vec<[Duration; 2]>; 2] = Default::default();
    for _ in 0..rounds {
        for (set, times) in sets.iter().zip(&mut times) {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let start = Instant::now();
            set.record(&mut encoder, scale, clip)?;
            let recorded = start.elapsed();
            let commands = encoder.finish();
            times.push([recorded, start.elapsed()]);
            gpu.queue().submit([commands]);
            gpu.device().poll(wgpu::PollType::wait_indefinitely())?;
        }
    }
    for (set, times) in sets.iter().zip(&mut times) {
        let median = |part: usize, times: &mut Vec<[Duration; 2]>| {
            times.sort_by_key(|t| t[part]);
            times[times.len() / 2][part].as_secs_f64() * 1e6
        };
        let dispatches = 2 * set.plan().dispatches.len() + 1;
        let (record, finish) = (median(0, times), median(1, times));
        println!(
            "  300 tensors, {:<11}  {dispatches:>3} dispatches  record {record:7.1} us, with finish {finish:7.1} us",
            set.name()
        );
    }
    Ok(())
}

fn buffer(gpu: &Context, size: u64) -> wgpu::Buffer {
    gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    })
}
