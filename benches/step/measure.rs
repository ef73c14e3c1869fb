//! Every variant over the gradients of one model, in turns.

use gradclip::{ClipNorm, Context, Error, Format, GradSet, LossScale, wgpu};

use crate::clock::{Clock, Timing};
use crate::gradients::{Gradients, Layout};
use crate::limit::{Bound, Limit};
use crate::per_tensor::PerTensor;
use crate::pytorch::PyTorch;
use crate::row::{Place, Row};
use crate::shapes::Shape;
use crate::three_pass::ThreePass;
use crate::variant::Variant;

/// Rounds in turns after one that warms up.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    pub measured: usize,
    pub warm: usize,
}

/// The gradients of a model in one format and layout, and all that is done to them. Each round leaves them as they were:
/// `step-unscale` doubles them, `step` and the rest halve them or keep their size.
pub struct Contest<'a> {
    clock: &'a Clock,
    pub place: Place,
    set: GradSet,
    gradients: Gradients,
    /// As many bytes in one buffer, where the gradients lie in several.
    _contiguous: Vec<wgpu::Buffer>,
    limit: [Bound<'a>; 2],
    three_pass: Option<ThreePass>,
    per_tensor: Option<PerTensor>,
    pytorch: &'a mut Vec<(Variant, PyTorch)>,
    half: LossScale,
    clip: ClipNorm,
    loose: ClipNorm,
    norm: f64,
    variants: Vec<Variant>,
}

impl<'a> Contest<'a> {
    /// Allocates everything; `Err` where the device has no room for it. The peers have gradients of this shape already.
    pub fn new(
        clock: &'a Clock,
        limit: &'a Limit,
        shape: &Shape,
        (format, layout): (Format, Layout),
        scale_down: u64,
        wanted: &[Variant],
        pytorch: &'a mut Vec<(Variant, PyTorch)>,
    ) -> Result<Self, String> {
        let gpu = &clock.gpu;
        let text = |e: Error| e.to_string();
        let gradients = Gradients::new(gpu, shape, format, layout)?;
        let contiguous = match layout {
            Layout::Separate if gradients.buffers.len() > 1 => {
                Gradients::new(gpu, &whole(gpu, gradients.bytes()), Format::F32, Layout::Arena)?.buffers
            }
            _ => Vec::new(),
        };
        let bytes = if contiguous.is_empty() { &gradients.buffers } else { &contiguous };
        let limit = [limit.read(gpu, bytes), limit.read_write(gpu, bytes)];
        let set = gradients.set(gpu).map_err(text)?;
        clock.time(|e| set.record(e, LossScale::ONE, None))?;
        let norm = set.read_report().map_err(text)?.total_norm.ok_or("the gradients are not finite")?;
        let clip = |norm: f64| ClipNorm::new(norm as f32)?.with_eps(0.0);
        let plain = (0.5, norm as f32);
        let f32s = |variant| format == Format::F32 && wanted.contains(&variant);
        let three_pass = f32s(Variant::ThreePass).then(|| ThreePass::new(gpu, &set, &gradients, plain));
        let per_tensor = f32s(Variant::PerTensorReadback).then(|| PerTensor::new(gpu, &gradients, plain));
        let present = |v: &Variant| match v {
            Variant::ThreePass => three_pass.is_some(),
            Variant::PerTensorReadback => per_tensor.is_some(),
            Variant::PytorchCpu | Variant::PytorchCuda => pytorch.iter().any(|(p, _)| p == v),
            _ => wanted.contains(v),
        };
        let mut variants: Vec<Variant> = Variant::ALL.into_iter().filter(present).collect();
        // `step` halves what `step-unscale` has just doubled.
        variants.sort_by_key(|v| !v.is_limit() && *v != Variant::StepUnscale);
        Ok(Self {
            clock,
            place: Place {
                shape: shape.name.clone(),
                format,
                layout,
                elements: shape.elements(),
                tensors: shape.tensors.len() as u64,
                scale_down,
                bytes: gradients.bytes(),
            },
            variants,
            three_pass,
            per_tensor,
            half: LossScale::new(0.5).map_err(text)?,
            clip: clip(norm).map_err(text)?,
            loose: clip(norm * 4.0).map_err(text)?,
            set,
            gradients,
            _contiguous: contiguous,
            limit,
            pytorch,
            norm,
        })
    }

    /// All rounds, and what became of a peer that failed: it has no row then. `tick` is called after each measurement.
    pub fn run(&mut self, rounds: Rounds, mut tick: impl FnMut()) -> Result<(Vec<Row>, Vec<String>), String> {
        let mut timings: Vec<(Variant, Vec<Timing>)> =
            self.variants.iter().map(|v| (*v, Vec::new())).collect();
        let mut lost: Vec<(Variant, String)> = Vec::new();
        for round in 0..rounds.warm + rounds.measured {
            for (variant, timings) in &mut timings {
                let variant = *variant;
                if lost.iter().any(|(v, _)| *v == variant) {
                    continue;
                }
                let timing = match self.one(variant) {
                    Err(why) if variant.is_pytorch() => {
                        lost.push((variant, why));
                        continue;
                    }
                    other => other.map_err(|e| format!("{}: {e}", variant.name()))?,
                };
                if round == 0 {
                    self.check(variant).map_err(|e| format!("{}: {e}", variant.name()))?;
                }
                if round >= rounds.warm {
                    timings.push(timing);
                }
                tick();
            }
        }
        self.pytorch.retain(|(v, _)| lost.iter().all(|(l, _)| l != v));
        timings.retain(|(v, _)| lost.iter().all(|(l, _)| l != v));
        timings.sort_by_key(|(v, _)| Variant::ALL.iter().position(|known| known == v));
        let rows = timings.iter().map(|(v, timings)| Row::new(&self.place, *v, timings)).collect();
        let lost = lost.into_iter().map(|(v, why)| format!("{} left out: {why}", v.name())).collect();
        Ok((rows, lost))
    }

    fn one(&mut self, variant: Variant) -> Result<Timing, String> {
        let (clock, set) = (self.clock, &self.set);
        let absent = || "was not set up".to_owned();
        match variant {
            Variant::LimitRead => clock.time(|e| self.limit[0].record(e)),
            Variant::LimitReadWrite => clock.time(|e| self.limit[1].record(e)),
            Variant::Step => clock.time(|e| set.record(e, LossScale::ONE, Some(self.clip))),
            Variant::StepUnscale => clock.time(|e| set.record(e, self.half, None)),
            Variant::StepNothingToClip => clock.time(|e| set.record(e, LossScale::ONE, Some(self.loose))),
            Variant::StepNonfinite => {
                let nan = if self.place.format == Format::F32 { f32::NAN.to_bits() } else { 0x7fc0_7fc0 };
                let before = self.swap_word(nan)?;
                let timing = clock.time(|e| set.record(e, LossScale::ONE, Some(self.clip)))?;
                self.swap_word(before)?;
                Ok(timing)
            }
            Variant::StepDeferred => clock.time(|e| set.record_deferred(e, LossScale::ONE, Some(self.clip))),
            Variant::ThreePass => {
                let three = self.three_pass.as_ref().ok_or_else(absent)?;
                clock.time(|e| three.record(e))
            }
            Variant::PerTensorReadback => {
                let (timing, norm) = self.per_tensor.as_ref().ok_or_else(absent)?.run(clock)?;
                near(norm, 2.0 * self.norm)?;
                Ok(timing)
            }
            Variant::PytorchCpu | Variant::PytorchCuda => {
                let (_, peer) = self.pytorch.iter_mut().find(|(v, _)| *v == variant).ok_or_else(absent)?;
                let wall = peer.run()?;
                Ok(Timing { record: wall, finish: wall, wall, gpu: None })
            }
        }
    }

    /// Whether the variant did its job, after its first run.
    fn check(&self, variant: Variant) -> Result<(), String> {
        let (factor, found_inf) = match variant {
            Variant::Step => (Some(0.5), false),
            Variant::StepUnscale => (Some(2.0), false),
            Variant::StepNothingToClip => (Some(1.0), false),
            Variant::StepNonfinite => (None, true),
            // The norm is at the limit.
            Variant::StepDeferred => (Some(1.0), false),
            Variant::ThreePass => {
                let three = self.three_pass.as_ref().ok_or("was not set up")?;
                let [found_inf, norm, coefficient] = self.words(three.state(), 0)?;
                near(f32::from_bits(norm).into(), 2.0 * self.norm)?;
                near(f32::from_bits(coefficient).into(), 0.5)?;
                return if found_inf == 0 { Ok(()) } else { Err("found a NaN where there is none".into()) };
            }
            _ => return Ok(()),
        };
        let report = self.set.read_report().map_err(|e| e.to_string())?;
        if (report.factor, report.found_inf) == (factor, found_inf) {
            Ok(())
        } else {
            Err(format!("expected factor {factor:?} and found_inf {found_inf}, got {report}"))
        }
    }

    /// Exchanges the word in the middle of the last tensor.
    fn swap_word(&self, word: u32) -> Result<u32, String> {
        let place = self.gradients.places[self.gradients.places.len() - 1];
        let buffer = &self.gradients.buffers[place.buffer];
        let offset = place.offset + (self.gradients.format.words(place.len) - 1) / 2 * 4;
        let [before] = self.words(buffer, offset)?;
        self.clock.gpu.queue().write_buffer(buffer, offset, &word.to_le_bytes());
        // The write travels with the next submission, which must not be the one that is timed.
        self.clock.gpu.queue().submit([]);
        self.clock.wait()?;
        Ok(before)
    }

    fn words<const N: usize>(&self, buffer: &wgpu::Buffer, offset: u64) -> Result<[u32; N], String> {
        let device = self.clock.gpu.device();
        let size = 4 * N as u64;
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
        let staging = crate::kernels::buffer(device, size, usage);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, offset, &staging, 0, size);
        self.clock.gpu.queue().submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.clock.wait()?;
        let view = staging.get_mapped_range(..).map_err(|e| e.to_string())?;
        let mut words = [0; N];
        bytemuck::cast_slice_mut(&mut words).copy_from_slice(&view);
        Ok(words)
    }
}

/// One tensor of as many bytes, or several where no buffer is that large.
fn whole(gpu: &Context, bytes: u64) -> Shape {
    let most = gpu.device().limits().max_buffer_size / 256 * 256;
    let parts = (0..bytes.div_ceil(most)).map(|i| most.min(bytes - i * most).div_ceil(4));
    Shape::new("contiguous", parts.collect())
}

/// Plain f32 sums of many squares lose some digits.
fn near(got: f64, expected: f64) -> Result<(), String> {
    if (got / expected - 1.0).abs() < 1e-3 { Ok(()) } else { Err(format!("{got} in place of {expected}")) }
}
