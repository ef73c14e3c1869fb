//! The plainest passes over the same buffers, to measure a step against.

use gradclip::{Context, Format, wgpu};

/// Words that one workgroup covers, as in a tile of the crate.
const GROUP_WORDS: u64 = 16_384;

const WGSL: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

var<workgroup> lanes: array<u32, 256>;

// What a group of 256 threads has at: 16384 words, 16 at a time.
fn start(group: vec3<u32>, lane: u32) -> u32 { return group.x * 16384u + lane; }

@compute @workgroup_size(256)
fn plain_read(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var at = start(group, lane);
    var sum = 0u;
    for (var i = 0u; i < 4u; i += 1u) {
READ
        at += 4096u;
    }
    lanes[lane] = sum;
    workgroupBarrier();
    if lane == 0u {
        for (var i = 1u; i < 256u; i += 1u) { sum ^= lanes[i]; }
        sums[group.x] = sum;
    }
}

@compute @workgroup_size(256)
fn plain_read_write(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var at = start(group, lane);
    for (var i = 0u; i < 4u; i += 1u) {
READ_WRITE
        at += 4096u;
    }
}

// The three passes that others make: multiply, sum of squares (in f32), multiply.
@compute @workgroup_size(256)
fn sum_squares(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var at = start(group, lane);
    var sum = 0.0;
    for (var i = 0u; i < 4u; i += 1u) {
SQUARE
        at += 4096u;
    }
    lanes[lane] = bitcast<u32>(sum);
    workgroupBarrier();
    if lane == 0u {
        for (var i = 1u; i < 256u; i += 1u) { sum += bitcast<f32>(lanes[i]); }
        sums[group.x] = bitcast<u32>(sum);
    }
}
";

/// Pipelines and bind groups of the plain passes.
pub struct Plain {
    read: wgpu::ComputePipeline,
    read_write: wgpu::ComputePipeline,
    sum_squares: wgpu::ComputePipeline,
    groups: Vec<(wgpu::BindGroup, u32)>,
}

impl Plain {
    pub fn new(gpu: &Context, buffers: &[wgpu::Buffer]) -> Self {
        let device = gpu.device();
        let unrolled = |line: &str| -> String {
            (0..16).map(|i| line.replace("AT", &format!("at + {}u", i * 256)) + "\n").collect()
        };
        // The sign flips, which costs a read and a write and keeps every magnitude.
        let text = WGSL
            .replace("READ_WRITE", &unrolled("words[AT] = bitcast<u32>(bitcast<f32>(words[AT]) * -1.0);"))
            .replace("READ", &unrolled("sum ^= words[AT];"))
            .replace("SQUARE", &unrolled("{ let x = bitcast<f32>(words[AT]); sum += x * x; }"));
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("plain"),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        let entry = |binding| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: false },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[entry(0), entry(1)],
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = |name| {
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(name),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            })
        };
        let groups = buffers.iter().map(|buffer| {
            let count = buffer.size() / 4 / GROUP_WORDS;
            let sums = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: count.max(1) * 4,
                usage: wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            });
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[
                    wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() },
                    wgpu::BindGroupEntry { binding: 1, resource: sums.as_entire_binding() },
                ],
            });
            (group, count as u32)
        });
        Self {
            read: pipeline("plain_read"),
            read_write: pipeline("plain_read_write"),
            sum_squares: pipeline("sum_squares"),
            groups: groups.collect(),
        }
    }

    pub fn read(&self, encoder: &mut wgpu::CommandEncoder) {
        self.passes(encoder, &[&self.read]);
    }

    pub fn read_write(&self, encoder: &mut wgpu::CommandEncoder) {
        self.passes(encoder, &[&self.read_write]);
    }

    pub fn three_passes(&self, encoder: &mut wgpu::CommandEncoder) {
        self.passes(encoder, &[&self.read_write, &self.sum_squares, &self.read_write]);
    }

    fn passes(&self, encoder: &mut wgpu::CommandEncoder, pipelines: &[&wgpu::ComputePipeline]) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for pipeline in pipelines {
            pass.set_pipeline(pipeline);
            for (group, count) in &self.groups {
                pass.set_bind_group(0, group, &[]);
                pass.dispatch_workgroups(*count, 1, 1);
            }
        }
    }
}

/// A buffer of gradients as training has them: magnitudes over a few binades, both signs, one in eight zero.
pub fn gradients(gpu: &Context, format: Format, bytes: u64, seed: u32) -> wgpu::Buffer {
    let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: Some("gradients"),
        size: bytes,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    });
    let mut state = 0x9e37_79b9_u32.wrapping_add(seed);
    let mut words = vec![0u32; (bytes / 4) as usize];
    for word in &mut words {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        let r = state ^ state >> 15;
        let half = |r: u32, exponent: u32, fraction: u32| {
            (r & 1) << 15 | (exponent - (r >> 1 & 7)) << fraction | (r >> 4 & ((1 << fraction) - 1))
        };
        *word = match format {
            _ if r >> 29 == 0 => 0,
            Format::F32 => (r & 1) << 31 | (120 - (r >> 1 & 15)) << 23 | r >> 9,
            Format::F16 => half(r, 14, 10) | half(r >> 16, 14, 10) << 16,
            Format::Bf16 => half(r, 120, 7) | half(r >> 16, 120, 7) << 16,
        };
    }
    if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
        view.copy_from_slice(bytemuck::cast_slice(&words));
    }
    buffer.unmap();
    buffer
}
