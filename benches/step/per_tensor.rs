//! What wgpu engines do by hand: for each tensor a dispatch for its sum of squares and a readback, then a dispatch to scale
//! it, in plain f32 arithmetic.

use std::time::{Duration, Instant};

use gradclip::{Context, Format, wgpu};

use crate::clock::{Clock, Timing};
use crate::gradients::Gradients;
use crate::kernels::{Binding, bind, buffer, filled, layout, part, pipeline, windows};

/// As in `per_tensor.wgsl`.
const TILE_WORDS: u64 = 16_384;

const TEXT: &str = concat!(include_str!("per_tensor.wgsl"), include_str!("add_up.wgsl"));
const SQUARE: &str = "
    var sum = 0.0;
    let end = min((group.x + 1u) * TILE, part.words);
    for (var at = group.x * TILE + lane; at < end; at += THREADS) {
        let x = words[at];
        sum += x * x;
    }
    let all = add_up(lane, sum);
    if lane == 0u { partials[part.first_tile + group.x] = all; }
";
const TOTAL: &str = "
    var sum = 0.0;
    for (var i = lane; i < part.tiles; i += THREADS) { sum += partials[i]; }
    let all = add_up(lane, sum);
    if lane == 0u { total[0] = all; }
";
const SCALE: &str = "
    let end = min((group.x + 1u) * TILE, part.words);
    for (var at = group.x * TILE + lane; at < end; at += THREADS) { words[at] *= factor.x; }
";

pub struct PerTensor {
    square: wgpu::ComputePipeline,
    total: wgpu::ComputePipeline,
    scale: wgpu::ComputePipeline,
    shared: wgpu::BindGroup,
    sum: wgpu::Buffer,
    factor: wgpu::Buffer,
    staging: wgpu::Buffer,
    tensors: Vec<Tensor>,
    inverse_scale: f32,
    max_norm: f32,
}

struct Tensor {
    parts: Vec<Part>,
    total: wgpu::BindGroup,
}

struct Part {
    read: wgpu::BindGroup,
    write: wgpu::BindGroup,
    tiles: u32,
}

impl PerTensor {
    pub fn new(gpu: &Context, gradients: &Gradients, (scale, max_norm): (f32, f32)) -> Self {
        debug_assert!(gradients.format == Format::F32);
        let device = gpu.device();
        let storage = wgpu::BufferUsages::STORAGE;
        let [read, write] =
            [Binding::Read, Binding::Write].map(|words| layout(device, &[words, Binding::Uniform]));
        let shared_layout = layout(device, &[Binding::Write, Binding::Write, Binding::Uniform]);
        let kernel = |access: &str, body: &str, words: &wgpu::BindGroupLayout| {
            let text = TEXT.replace("ACCESS", access).replace("BODY", body);
            pipeline(device, "per tensor", &text, &[words, &shared_layout])
        };
        let longest = gradients.places.iter().map(|p| p.len).max().unwrap_or(1);
        let partials = buffer(device, (longest.div_ceil(TILE_WORDS) + 64) * 4, storage);
        let sum = buffer(device, 256, storage | wgpu::BufferUsages::COPY_SRC);
        let factor = buffer(device, 16, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST);
        let resources = [partials.as_entire_binding(), sum.as_entire_binding(), factor.as_entire_binding()];
        let tensors = gradients.places.iter().map(|place| {
            let buffer = &gradients.buffers[place.buffer];
            let mut first_tile = 0;
            let uniform = |words: u64, first: u64, tiles: u64| {
                let fields = [words as u32, first as u32, tiles as u32, 0];
                filled(device, bytemuck::bytes_of(&fields), wgpu::BufferUsages::UNIFORM)
            };
            let mut parts = Vec::new();
            for (offset, size) in windows(device, place.offset, place.len * 4) {
                let tiles = (size / 4).div_ceil(TILE_WORDS);
                let uniform = uniform(size / 4, first_tile, tiles);
                let resources = [part(buffer, offset, size), uniform.as_entire_binding()];
                parts.push(Part {
                    read: bind(device, &read, &resources),
                    write: bind(device, &write, &resources),
                    tiles: tiles as u32,
                });
                first_tile += tiles;
            }
            let all = uniform(0, 0, first_tile);
            let first = part(buffer, place.offset, 4);
            Tensor { parts, total: bind(device, &read, &[first, all.as_entire_binding()]) }
        });
        Self {
            square: kernel("read", SQUARE, &read),
            total: kernel("read", TOTAL, &read),
            scale: kernel("read_write", SCALE, &write),
            shared: bind(device, &shared_layout, &resources),
            tensors: tensors.collect(),
            sum,
            factor,
            staging: buffer(device, 4, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
            inverse_scale: 1.0 / scale,
            max_norm,
        }
    }

    /// The whole step: its time, and the norm that it found.
    pub fn run(&self, clock: &Clock) -> Result<(Timing, f64), String> {
        let device = clock.gpu.device();
        let mut record = Duration::ZERO;
        let mut finish = Duration::ZERO;
        let start = Instant::now();
        let mut submit = |fill: &dyn Fn(&mut wgpu::CommandEncoder)| {
            let start = Instant::now();
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            fill(&mut encoder);
            record += start.elapsed();
            let start = Instant::now();
            let commands = encoder.finish();
            finish += start.elapsed();
            clock.gpu.queue().submit([commands]);
        };
        let mut squares = 0.0;
        for tensor in &self.tensors {
            submit(&|encoder| self.measure(encoder, tensor));
            squares += f64::from(self.read_sum(clock)?);
        }
        let norm = squares.sqrt() * f64::from(self.inverse_scale);
        let coefficient = (f64::from(self.max_norm) / (norm + 1e-6)).min(1.0);
        let factor = coefficient as f32 * self.inverse_scale;
        clock.gpu.queue().write_buffer(&self.factor, 0, bytemuck::bytes_of(&[factor; 4]));
        submit(&|encoder| {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.scale);
            pass.set_bind_group(1, &self.shared, &[]);
            for part in self.tensors.iter().flat_map(|t| &t.parts) {
                pass.set_bind_group(0, &part.write, &[]);
                pass.dispatch_workgroups(part.tiles, 1, 1);
            }
        });
        clock.wait()?;
        // Recording is part of the way here, and can run beside nothing.
        Ok((Timing { record, finish, wall: start.elapsed(), gpu: None }, norm))
    }

    fn measure(&self, encoder: &mut wgpu::CommandEncoder, tensor: &Tensor) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_bind_group(1, &self.shared, &[]);
        pass.set_pipeline(&self.square);
        for part in &tensor.parts {
            pass.set_bind_group(0, &part.read, &[]);
            pass.dispatch_workgroups(part.tiles, 1, 1);
        }
        pass.set_pipeline(&self.total);
        pass.set_bind_group(0, &tensor.total, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        drop(pass);
        encoder.copy_buffer_to_buffer(&self.sum, 0, &self.staging, 0, 4);
    }

    fn read_sum(&self, clock: &Clock) -> Result<f32, String> {
        self.staging.map_async(wgpu::MapMode::Read, .., |_| {});
        clock.wait()?;
        let sum = {
            let view = self.staging.get_mapped_range(..).map_err(|e| e.to_string())?;
            bytemuck::pod_read_unaligned(&view)
        };
        self.staging.unmap();
        Ok(sum)
    }
}
