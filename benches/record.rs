//! Microseconds to record a step of 300 tensors: in 300 buffers, in one arena, and as two optimizers of 150 tensors under
//! one scaler.
//!
//! `cargo bench --bench record -- [--adapter NAME] [--rounds N]`

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../examples/conformance/adapters.rs"]
mod adapters;

use std::ops::Range;
use std::time::{Duration, Instant};

use gradclip::{
    ClipNorm, Context, Error, Format, GradScaler, GradSet, LossScale, ScalerConfig, TensorSlice, wgpu,
};

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
    let scattered = |range: Range<u64>| set(gpu, range.map(|i| (&own[i as usize], 0)).collect::<Vec<_>>());
    let together =
        |range: Range<u64>| set(gpu, range.map(|i| (&arena, i * ELEMENTS * 4)).collect::<Vec<_>>());
    let half = TENSORS / 2;
    let one = [scattered(0..TENSORS)?, together(0..TENSORS)?];
    let two =
        [[scattered(0..half)?, scattered(half..TENSORS)?], [together(0..half)?, together(half..TENSORS)?]];
    let (scale, clip) = (LossScale::new(1024.0)?, ClipNorm::new(1.0)?);
    let scaler = GradScaler::new(gpu, ScalerConfig::default())?;
    let with_scaler = |encoder: &mut wgpu::CommandEncoder, sets: &[GradSet; 2]| -> Result<(), Error> {
        let [first, second] = sets;
        let (first, second) = (scaler.begin(first)?, scaler.begin(second)?);
        let first = first.unscale().clip_grad_norm(clip).record(encoder)?;
        let second = second.unscale().clip_grad_norm(clip).record(encoder)?;
        scaler.update(encoder, [first, second])
    };
    type Record<'a> = Box<dyn Fn(&mut wgpu::CommandEncoder) -> Result<(), Error> + 'a>;
    let rows: [(&str, Record<'_>); 4] = [
        ("one set, 300 buffers", Box::new(|e| one[0].record(e, scale, Some(clip)))),
        ("one set, one arena", Box::new(|e| one[1].record(e, scale, Some(clip)))),
        ("two optimizers and the scale, 300 buffers", Box::new(|e| with_scaler(e, &two[0]))),
        ("two optimizers and the scale, one arena", Box::new(|e| with_scaler(e, &two[1]))),
    ];
    let mut times: [Vec<[Duration; 2]>; 4] = Default::default();
    for _ in 0..rounds {
        for ((_, record), times) in rows.iter().zip(&mut times) {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let start = Instant::now();
            record(&mut encoder)?;
            let recorded = start.elapsed();
            let commands = encoder.finish();
            times.push([recorded, start.elapsed()]);
            gpu.queue().submit([commands]);
            gpu.device().poll(wgpu::PollType::wait_indefinitely())?;
        }
    }
    for ((name, _), times) in rows.iter().zip(&mut times) {
        let mut median = |part: usize| {
            times.sort_by_key(|t| t[part]);
            times[times.len() / 2][part].as_secs_f64() * 1e6
        };
        let (record, finish) = (median(0), median(1));
        println!("  {name:<42} record {record:7.1} us, with finish {finish:7.1} us");
    }
    Ok(())
}

fn set(gpu: &Context, places: Vec<(&wgpu::Buffer, u64)>) -> Result<GradSet, Error> {
    let mut builder = GradSet::builder("optimizer");
    for (i, (buffer, offset)) in places.into_iter().enumerate() {
        builder =
            builder.tensor(i.to_string(), TensorSlice { buffer, offset, len: ELEMENTS, format: Format::F32 });
    }
    builder.build(gpu)
}

fn buffer(gpu: &Context, size: u64) -> wgpu::Buffer {
    gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    })
}
