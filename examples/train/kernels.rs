//! The example's own kernels, and a dispatch of one with its buffers.

use gradclip::{VERDICT_WGSL, scaled_wgsl, wgpu};
use wgpu::util::DeviceExt as _;

const HALF: &str = include_str!("half.wgsl");
const LAYER: &str = include_str!("layer.wgsl");
const HYPER: &str = include_str!("hyper.wgsl");
const OPTIMIZER: &str = include_str!("optimizer.wgsl");

pub struct Kernels {
    pub device: wgpu::Device,
    pub gather: wgpu::ComputePipeline,
    pub forward: wgpu::ComputePipeline,
    pub loss: wgpu::ComputePipeline,
    pub backward_weights: wgpu::ComputePipeline,
    pub backward_inputs: wgpu::ComputePipeline,
    pub curve: wgpu::ComputePipeline,
    pub sgd: wgpu::ComputePipeline,
    pub adamw: wgpu::ComputePipeline,
    pub clip_early: wgpu::ComputePipeline,
}

impl Kernels {
    pub fn new(device: &wgpu::Device) -> Self {
        let make = |label, parts: &[&str]| {
            let source = wgpu::ShaderSource::Wgsl(parts.concat().into());
            let module =
                device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some(label), source });
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(label),
                layout: None,
                module: &module,
                entry_point: Some("main"),
                compilation_options: Default::default(),
                cache: None,
            })
        };
        let optimizer =
            |label, text| make(label, &[VERDICT_WGSL, scaled_wgsl(), HYPER, HALF, OPTIMIZER, text]);
        Self {
            device: device.clone(),
            gather: make("gather", &[include_str!("gather.wgsl")]),
            forward: make("forward", &[HALF, LAYER, include_str!("forward.wgsl")]),
            loss: make("loss", &[HALF, include_str!("loss.wgsl")]),
            backward_weights: make("backward_weights", &[HALF, LAYER, include_str!("backward_weights.wgsl")]),
            backward_inputs: make("backward_inputs", &[HALF, LAYER, include_str!("backward_inputs.wgsl")]),
            curve: make("curve", &[include_str!("curve.wgsl")]),
            sgd: optimizer("sgd", include_str!("sgd.wgsl")),
            adamw: optimizer("adamw", include_str!("adamw.wgsl")),
            clip_early: make("clip_early", &[VERDICT_WGSL, HALF, include_str!("clip_early.wgsl")]),
        }
    }

    /// A dispatch of at least `threads` threads, with these resources at bindings 0, 1, 2...
    pub fn task(
        &self,
        pipeline: &wgpu::ComputePipeline,
        threads: usize,
        resources: &[wgpu::BindingResource<'_>],
    ) -> Task {
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0..)
            .zip(resources)
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource: resource.clone() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Task { pipeline: pipeline.clone(), group, workgroups: threads.div_ceil(64) as u32 }
    }

    pub fn buffer<T: bytemuck::NoUninit>(&self, contents: &[T]) -> wgpu::Buffer {
        use wgpu::BufferUsages as Usage;
        self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: bytemuck::cast_slice(contents),
            usage: Usage::STORAGE | Usage::UNIFORM | Usage::COPY_SRC | Usage::COPY_DST,
        })
    }

    /// A buffer of zeros.
    pub fn words(&self, words: usize) -> wgpu::Buffer {
        self.buffer(&vec![0u32; words])
    }
}

/// A dispatch, ready to be recorded again and again.
pub struct Task {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    workgroups: u32,
}

pub fn record<'a>(encoder: &mut wgpu::CommandEncoder, tasks: impl IntoIterator<Item = &'a Task>) {
    let mut pass = encoder.begin_compute_pass(&Default::default());
    for task in tasks {
        pass.set_pipeline(&task.pipeline);
        pass.set_bind_group(0, &task.group, &[]);
        pass.dispatch_workgroups(task.workgroups, 1, 1);
    }
}

/// Two f16 a word.
pub fn pack(values: &[f32]) -> Vec<u32> {
    let half = |v: f32| u32::from(half::f16::from_f32(v).to_bits());
    values.chunks_exact(2).map(|pair| half(pair[0]) | half(pair[1]) << 16).collect()
}
