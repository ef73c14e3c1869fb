//! What recording costs on the CPU, by where the numbers of a step come from.

use std::time::Instant;

use gradclip::{Error, Format, Limit, Unscale, wgpu};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::gradients::{Gradients, Layout};
use crate::kernels::filled;
use crate::row::Spread;
use crate::shapes::Shape;

/// Recording a step over f32 tensors in one arena.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NumbersRow {
    pub numbers: String,
    pub tensors: u64,
    pub record_us: Spread,
    /// `CommandEncoder::finish` after it, which is wgpu's own work.
    pub finish_us: Spread,
}

/// Scale, divisor, limit, eps, threshold.
const WORDS: [f32; 5] = [1024.0, 2.0, 1.0, 1e-6, 1e30];

/// A row each for a limit that stays, one that the host changes every step, and numbers that the GPU reads from a buffer.
pub fn measure(clock: &Clock, tensors: usize, rounds: usize) -> Result<Vec<NumbersRow>, String> {
    let gpu = &clock.gpu;
    let text = |e: Error| e.to_string();
    let shape = Shape::new("numbers", vec![1024; tensors]);
    let gradients = Gradients::new(gpu, &shape, Format::F32, Layout::Arena)?;
    let set = gradients.set(gpu).map_err(text)?;
    let buffer = filled(gpu.device(), bytemuck::cast_slice(&WORDS), wgpu::BufferUsages::STORAGE);
    let word = |i: u64| gpu.word(&buffer, 4 * i).map_err(text);
    let words = [word(0)?, word(1)?, word(2)?, word(3)?, word(4)?];
    let [scale, divisor, max_norm, eps, skip_above] = &words;

    type Told<'a> = (&'static str, Box<dyn Fn(usize) -> (Unscale, Limit) + 'a>);
    let ways: [Told<'_>; 3] = [
        ("a constant limit", Box::new(|_| (1024.0.into(), Limit::norm(1.0)))),
        ("a limit that changes", Box::new(|round| (1024.0.into(), Limit::norm(1.0 + round as f32)))),
        (
            "five words of a buffer",
            Box::new(|_| {
                let limit = Limit::norm(max_norm).eps(eps).skip_above(skip_above);
                (Unscale::by(scale).divide_by(divisor), limit)
            }),
        ),
    ];
    let mut samples = [(); 3].map(|()| [Vec::new(), Vec::new()]);
    for round in 0..=rounds {
        let mut recordings = Vec::with_capacity(4);
        // The CPU has slept while it waited, so the first of a round is not counted.
        for (turn, way) in [0, 0, 1, 2].into_iter().enumerate() {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let start = Instant::now();
            let (unscale, limit) = ways[way].1(round);
            set.record(&mut encoder, unscale, limit).map_err(text)?;
            let recorded = start.elapsed();
            let start = Instant::now();
            let commands = encoder.finish();
            let finished = start.elapsed();
            recordings.push(commands);
            // The first round fills the caches that a training run has filled.
            if round > 0 && turn > 0 {
                let times = [recorded, finished].map(|time| time.as_secs_f64() * 1e6);
                samples[way].iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
            }
        }
        // Once all are recorded: a software adapter works on the same CPU.
        gpu.queue().submit(recordings);
        clock.wait()?;
    }
    let rows = ways.iter().zip(&samples).map(|((numbers, _), [record, finish])| NumbersRow {
        numbers: (*numbers).to_owned(),
        tensors: tensors as u64,
        record_us: Spread::of(record),
        finish_us: Spread::of(finish),
    });
    Ok(rows.collect())
}
