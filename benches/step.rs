//! A step against the least that memory allows, interleaved in one run: a plain read pass plus a plain read-write pass
//! over the same bytes, and unscale, norm and clip as three plain f32 passes.
//!
//! `cargo bench --bench step -- [--adapter NAME] [--elements N] [--rounds N]`

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../examples/conformance/adapters.rs"]
mod adapters;
mod plain;

use std::time::{Duration, Instant};

use gradclip::{ClipNorm, Context, Format, GradSet, LossScale, TensorSlice, wgpu};
use plain::Plain;

struct Args {
    adapter: Option<String>,
    elements: u64,
    rounds: usize,
}

fn arguments() -> Result<Args, lexopt::Error> {
    use lexopt::prelude::*;
    let mut args = Args { adapter: None, elements: 64 << 20, rounds: 7 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("adapter") => args.adapter = Some(parser.value()?.string()?),
            Long("elements") => args.elements = parser.value()?.parse()?,
            Long("rounds") => args.rounds = parser.value()?.parse()?,
            // Cargo says so when it runs benches, and leaves it out when it runs them as tests: then one small round.
            Long("bench") => {}
            _ => return Err(arg.unexpected()),
        }
    }
    if !std::env::args().any(|a| a == "--bench") {
        (args.elements, args.rounds) = (1 << 16, 1);
    }
    Ok(args)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = arguments()?;
    let adapters = match &args.adapter {
        Some(name) => adapters::named(name)?,
        None => adapters::named("all")?.into_iter().take(1).collect(),
    };
    for adapter in adapters {
        let gpu = adapters::open(&adapter)?;
        println!("{}", adapters::label(&adapter.get_info()));
        for format in Format::ALL {
            measure(&gpu.context, format, &args)?;
        }
    }
    Ok(())
}

fn measure(gpu: &Context, format: Format, args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let bytes = args.elements * format.size();
    let limits = gpu.device().limits();
    let window = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(1 << 30);
    let buffers: Vec<wgpu::Buffer> = (0..bytes.div_ceil(window))
        .map(|i| plain::gradients(gpu, format, window.min(bytes - i * window), i as u32))
        .collect();
    let mut builder = GradSet::builder("bench");
    for (i, buffer) in buffers.iter().enumerate() {
        let len = buffer.size() / format.size();
        builder = builder.tensor(i.to_string(), TensorSlice { buffer, offset: 0, len, format });
    }
    let set = builder.build(gpu)?;
    let plain = Plain::new(gpu, &buffers);
    // Scale 1.5 and a limit near the norm keep the gradients in range through all rounds, with something to write.
    let step = |encoder: &mut wgpu::CommandEncoder, max_norm: f32| {
        let clip = ClipNorm::new(max_norm)?;
        set.record(encoder, LossScale::ONE, Some(clip))
    };
    let mut clip_at = f32::INFINITY;
    let mut times: [Vec<Duration>; 6] = Default::default();
    for round in 0..=args.rounds {
        let mut put = |row: usize, time: Duration| {
            // The first round warms caches and pipelines.
            if round > 0 || args.rounds == 1 {
                times[row].push(time);
            }
        };
        put(0, timed(gpu, |e| plain.read(e)));
        put(1, timed(gpu, |e| plain.read_write(e)));
        put(2, timed(gpu, |e| plain.three_passes(e)));
        put(3, timed(gpu, |e| step(e, f32::INFINITY).unwrap_or_else(|e| panic!("{e}"))));
        let norm = set.read_report()?.total_norm as f32;
        clip_at = if clip_at.is_finite() { clip_at * 0.99 } else { norm * 0.99 };
        put(4, timed(gpu, |e| step(e, clip_at).unwrap_or_else(|e| panic!("{e}"))));
        assert!(set.read_report()?.clipped(), "the step had nothing to write");
    }
    let median = |row: usize| {
        let mut sorted = times[row].clone();
        sorted.sort();
        sorted[sorted.len() / 2].as_secs_f64()
    };
    let (read, write, three, check, step) = (median(0), median(1), median(2), median(3), median(4));
    let rate = |passes: f64, time: f64| passes * bytes as f64 / time / 1e9;
    println!("  {format}, {} Mi elements, median of {}", args.elements >> 20, args.rounds);
    println!("    plain read              {:9.3} ms {:8.1} GB/s", read * 1e3, rate(1.0, read));
    println!("    plain read-write        {:9.3} ms {:8.1} GB/s", write * 1e3, rate(2.0, write));
    if format == Format::F32 {
        println!("    three plain passes      {:9.3} ms", three * 1e3);
    }
    println!("    step, nothing to write  {:9.3} ms {:8.1} GB/s", check * 1e3, rate(1.0, check));
    println!("    step, clipped           {:9.3} ms {:8.1} GB/s", step * 1e3, rate(3.0, step));
    println!("    step / (read + read-write)  {:.2}", step / (read + write));
    println!("    check / read                {:.2}", check / read);
    println!("    write part / read-write     {:.2}", (step - check) / write);
    if format == Format::F32 {
        println!("    step / three plain passes   {:.2}", step / three);
    }
    Ok(())
}

fn timed(gpu: &Context, record: impl FnOnce(&mut wgpu::CommandEncoder)) -> Duration {
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    record(&mut encoder);
    let commands = encoder.finish();
    let start = Instant::now();
    gpu.queue().submit([commands]);
    gpu.device().poll(wgpu::PollType::wait_indefinitely()).unwrap_or_else(|e| panic!("{e}"));
    start.elapsed()
}
