//! A parameter tensor with its gradients, its moments and one of the kernels.

use gradclip::{ClipNorm, Context, Format, GradSet, LossScale, TensorSlice, Verdict, wgpu};

use crate::common::f32s;
use crate::common::runner::{download, upload};
use crate::rules::{BETA_1, BETA_2, EPSILON, RATE, Rule, WEIGHT_DECAY};

pub struct World {
    pub set: GradSet,
    pub deferred: bool,
    gradients: wgpu::Buffer,
    parameters: wgpu::Buffer,
    moments: wgpu::Buffer,
    verdict: wgpu::Buffer,
    pipeline: wgpu::ComputePipeline,
    elements: usize,
}

impl World {
    /// `entry`: "deferred", or "from_scaled".
    pub fn new(gpu: &Context, rule: Rule, start: &[f32], entry: &str) -> Self {
        let gradients = upload(gpu, &vec![0; 4 * start.len()]);
        let slice =
            TensorSlice { buffer: &gradients, offset: 0, len: start.len() as u64, format: Format::F32 };
        let set = GradSet::builder("optimizer").tensor("weight", slice).build(gpu).unwrap();
        let module = gpu.device().create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("optimizer"),
            source: wgpu::ShaderSource::Wgsl(rule.wgsl().into()),
        });
        let pipeline = gpu.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(entry),
            layout: None,
            module: &module,
            entry_point: Some(entry),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let verdict = set.verdict().buffer.clone();
        Self {
            set,
            deferred: entry == "deferred",
            gradients,
            parameters: upload(gpu, &f32s(start)),
            moments: upload(gpu, &vec![0; 8 * start.len()]),
            verdict,
            pipeline,
            elements: start.len(),
        }
    }

    /// Writes the gradients with the next submission.
    pub fn put(&self, gpu: &Context, gradients: &[f32]) {
        gpu.queue().write_buffer(&self.gradients, 0, &f32s(gradients));
    }

    /// Records the step that the kernel goes with.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder, scale: LossScale, clip: Option<ClipNorm>) {
        if self.deferred {
            self.set.record_deferred(encoder, scale, clip).unwrap();
        } else {
            self.set.record(encoder, scale, clip).unwrap();
        }
    }

    /// Records the optimizer's kernel; `step` counts from 1.
    pub fn optimize(&self, gpu: &Context, encoder: &mut wgpu::CommandEncoder, step: u32) {
        let corrections =
            [BETA_1, BETA_2].map(|beta| 1.0 - f64::from(beta).powi(step as i32)).map(|c| c as f32);
        let floats = [RATE, WEIGHT_DECAY, BETA_1, BETA_2, EPSILON, corrections[0], corrections[1]];
        let words = [self.elements as u32, 0].into_iter().chain(floats.map(f32::to_bits)).chain([0; 3]);
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        let hyper = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("hyper"),
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        gpu.queue().write_buffer(&hyper, 0, &bytes);
        let resources = [
            wgpu::BindingResource::Buffer(self.set.verdict()),
            hyper.as_entire_binding(),
            self.gradients.as_entire_binding(),
            self.parameters.as_entire_binding(),
            self.moments.as_entire_binding(),
        ];
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0..)
            .zip(resources)
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        let group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("optimizer"),
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(self.elements.div_ceil(64) as u32, 1, 1);
    }

    /// Parameters, then moments.
    pub fn state(&self, gpu: &Context) -> Vec<f32> {
        [&self.parameters, &self.moments].into_iter().flat_map(|buffer| floats(gpu, buffer)).collect()
    }

    pub fn gradients(&self, gpu: &Context) -> Vec<f32> {
        floats(gpu, &self.gradients)
    }

    pub fn verdict(&self, gpu: &Context) -> Verdict {
        let bytes = download(gpu, &self.verdict).unwrap();
        bytemuck::pod_read_unaligned(&bytes[..size_of::<Verdict>()])
    }
}

fn floats(gpu: &Context, buffer: &wgpu::Buffer) -> Vec<f32> {
    let bytes = download(gpu, buffer).unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
