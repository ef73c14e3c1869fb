//! Gradients of a shape on the GPU, in one arena or a buffer each.

use gradclip::{Context, Error, Format, GradSet, TensorSlice, wgpu};
use serde::{Deserialize, Serialize};

use crate::kernels::{Binding, THREADS, bind, filled, layout, part, pipeline, windows};
use crate::shapes::Shape;

/// How the tensors lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One buffer, or as many as the device's largest buffer makes necessary; tensors at multiples of 256 bytes.
    Arena,
    /// A buffer for each tensor.
    Separate,
}

impl Layout {
    pub const ALL: [Self; 2] = [Self::Arena, Self::Separate];

    pub fn name(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Separate => "separate",
        }
    }
}

/// Where a tensor lies.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub buffer: usize,
    pub offset: u64,
    pub len: u64,
}

pub struct Gradients {
    pub format: Format,
    pub buffers: Vec<wgpu::Buffer>,
    pub places: Vec<Place>,
}

impl Gradients {
    /// Allocates and fills them; refused if the device has no room.
    pub fn new(gpu: &Context, shape: &Shape, format: Format, layout: Layout) -> Result<Self, String> {
        let device = gpu.device();
        let most = device.limits().max_buffer_size;
        let mut sizes: Vec<u64> = Vec::new();
        let mut places = Vec::new();
        for &len in &shape.tensors {
            let bytes = (format.words(len) * 4).next_multiple_of(256);
            if bytes > most {
                return Err(format!("a tensor of {bytes} bytes; the largest buffer is {most} bytes"));
            }
            match sizes.last_mut() {
                Some(size) if layout == Layout::Arena && *size + bytes <= most => *size += bytes,
                _ => sizes.push(bytes),
            }
            places.push(Place { buffer: sizes.len() - 1, offset: sizes[sizes.len() - 1] - bytes, len });
        }
        let buffers = allocate(device, &sizes)?;
        fill(gpu, format, &buffers);
        Ok(Self { format, buffers, places })
    }

    /// The set of an optimizer that owns them all.
    pub fn set(&self, gpu: &Context) -> Result<GradSet, Error> {
        let mut builder = GradSet::builder("bench");
        for (i, slice) in self.slices().into_iter().enumerate() {
            builder = builder.tensor(i.to_string(), slice);
        }
        builder.build(gpu)
    }

    pub fn slices(&self) -> Vec<TensorSlice<'_>> {
        let slice = |p: &Place| TensorSlice {
            buffer: &self.buffers[p.buffer],
            offset: p.offset,
            len: p.len,
            format: self.format,
        };
        self.places.iter().map(slice).collect()
    }

    /// Bytes that a pass over all gradients touches.
    pub fn bytes(&self) -> u64 {
        self.places.iter().map(|p| p.len * self.format.size()).sum()
    }
}

/// Storage buffers, or what wgpu says against them.
pub fn allocate(device: &wgpu::Device, sizes: &[u64]) -> Result<Vec<wgpu::Buffer>, String> {
    let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal]
        .map(|filter| device.push_error_scope(filter));
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let buffers = sizes.iter().map(|&size| crate::kernels::buffer(device, size, usage)).collect();
    let errors = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop()));
    match errors.last() {
        None => Ok(buffers),
        Some(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// Magnitudes over sixteen binades (eight in 16 bits), both signs, one word in eight zero, as training has them.
fn fill(gpu: &Context, format: Format, buffers: &[wgpu::Buffer]) {
    let device = gpu.device();
    let bindings = layout(device, &[Binding::Write, Binding::Uniform]);
    let pipeline = pipeline(device, "fill", include_str!("fill.wgsl"), &[&bindings]);
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    let mut seed = 1u32;
    for buffer in buffers {
        for (offset, size) in windows(device, 0, buffer.size()) {
            let (exponent, fraction) = match format {
                Format::F32 => (120, 23),
                Format::F16 => (14, 10),
                Format::Bf16 => (120, 7),
            };
            let words = (size / 4) as u32;
            let parameters = filled(
                device,
                bytemuck::bytes_of(&[seed, exponent, fraction, words]),
                wgpu::BufferUsages::UNIFORM,
            );
            let group =
                bind(device, &bindings, &[part(buffer, offset, size), parameters.as_entire_binding()]);
            seed = seed.wrapping_add(words);
            let groups = size / 4 / THREADS;
            pass.set_bind_group(0, &group, &[]);
            // Windows are multiples of 256 bytes, not of 256 words.
            pass.dispatch_workgroups(groups.clamp(1, 4096) as u32, 1, 1);
        }
    }
    drop(pass);
    gpu.queue().submit([encoder.finish()]);
}
