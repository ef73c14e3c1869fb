//! What a set costs on the CPU: to build, to point at other buffers, to record; and in memory.

use std::time::Instant;

use gradclip::{ClipNorm, Error, Format, GradScaler, GradSet, LossScale, ScalerConfig, wgpu};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::gradients::{Gradients, Layout};
use crate::row::Spread;
use crate::shapes::Shape;

/// Costs of the sets over one model's gradients in f32.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetRow {
    pub shape: String,
    pub layout: Layout,
    pub tensors: u64,
    pub elements: u64,
    /// Each tensor is this many times shorter than the model's.
    pub scale_down: u64,
    /// 2: half of the tensors each for two optimizers, recorded with the scale update.
    pub optimizers: u64,
    pub build_us: Spread,
    pub rebind_us: Spread,
    pub record_us: Spread,
    /// `CommandEncoder::finish` after it, which is wgpu's own work.
    pub finish_us: Spread,
    /// Bytes that the sets own.
    pub memory_bytes: u64,
    /// Of the gradients' bytes.
    pub memory_share: f64,
}

/// Builds, rebinds and records `rounds` times, with pipelines compiled and step parameters cached.
pub fn measure(
    clock: &Clock,
    shape: &Shape,
    layout: Layout,
    (optimizers, scale_down): (usize, u64),
    rounds: usize,
) -> Result<SetRow, String> {
    let gpu = &clock.gpu;
    let text = |e: Error| e.to_string();
    let gradients = Gradients::new(gpu, shape, Format::F32, layout)?;
    let slices = gradients.slices();
    let share = slices.len().div_ceil(optimizers);
    let build = || -> Result<Vec<GradSet>, Error> {
        slices
            .chunks(share)
            .enumerate()
            .map(|(i, part)| {
                let mut builder = GradSet::builder(format!("optimizer {i}"));
                for (i, slice) in part.iter().enumerate() {
                    builder = builder.tensor(i.to_string(), *slice);
                }
                builder.build(gpu)
            })
            .collect()
    };
    let sets = build().map_err(text)?;
    let scaler = GradScaler::new(gpu, ScalerConfig::default()).map_err(text)?;
    let (scale, clip) = (LossScale::new(1024.0).map_err(text)?, ClipNorm::new(1.0).map_err(text)?);
    let record = |sets: &[GradSet], encoder: &mut wgpu::CommandEncoder| -> Result<(), Error> {
        if let [set] = sets {
            return set.record(encoder, scale, Some(clip));
        }
        let begun = sets.iter().map(|set| scaler.begin(set)).collect::<Result<Vec<_>, Error>>()?;
        let steps = begun
            .into_iter()
            .map(|step| step.unscale().limit(clip).record(encoder))
            .collect::<Result<Vec<_>, Error>>()?;
        scaler.update(encoder, steps)
    };
    let mut samples: [Vec<f64>; 4] = Default::default();
    for round in 0..=rounds {
        let mut times = [0.0; 4];
        let start = Instant::now();
        let built = build().map_err(text)?;
        times[0] = start.elapsed().as_secs_f64() * 1e6;
        drop(built);
        let start = Instant::now();
        for (set, part) in sets.iter().zip(slices.chunks(share)) {
            set.rebind(part).map_err(text)?;
        }
        times[1] = start.elapsed().as_secs_f64() * 1e6;
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let start = Instant::now();
        record(&sets, &mut encoder).map_err(text)?;
        times[2] = start.elapsed().as_secs_f64() * 1e6;
        let start = Instant::now();
        let commands = encoder.finish();
        times[3] = start.elapsed().as_secs_f64() * 1e6;
        gpu.queue().submit([commands]);
        clock.wait()?;
        // The first round fills the caches that a training run has filled.
        if round > 0 {
            samples.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
        }
    }
    let [build_us, rebind_us, record_us, finish_us] = samples.map(|s| Spread::of(&s));
    let memory_bytes: u64 = sets.iter().map(GradSet::memory_bytes).sum();
    Ok(SetRow {
        shape: shape.name.clone(),
        layout,
        tensors: shape.tensors.len() as u64,
        elements: shape.elements(),
        scale_down,
        optimizers: optimizers as u64,
        build_us,
        rebind_us,
        record_us,
        finish_us,
        memory_bytes,
        memory_share: memory_bytes as f64 / gradients.bytes() as f64,
    })
}
