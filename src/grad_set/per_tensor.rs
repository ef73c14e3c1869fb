//! Tensors by themselves: their norms, and factors and limits of their own.

use super::GradSet;
use super::compiled::{Compiled, Extra, Planned, own_of};
use crate::gpu::guard::guarded;
use crate::gpu::make::{filled, group, numbered, part};
use crate::gpu::readback::read_buffer;
use crate::gpu::ring;
use crate::gpu::shader::Kernel;
use crate::report::{HEAD_BYTES, TensorNorm};
use crate::slice::Tensor;
use crate::{Error, R24, TensorClip};

/// The twin of `struct TensorClip` in `tensor_clip.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct GpuTensorClip {
    norm_significand: u32,
    norm_exponent: i32,
    largest: u32,
    kind: u32,
    apply: u32,
    factor: f32,
    factor_significand: u32,
    factor_exponent: i32,
    coefficient_significand: u32,
    coefficient_exponent: i32,
    clip_value: u32,
    run: u32,
}

impl GpuTensorClip {
    /// `bytes`: the buffer of all tensors.
    pub fn read(bytes: &[u8], tensor: usize) -> Self {
        bytemuck::pod_read_unaligned(&bytes[tensor * size_of::<Self>()..][..size_of::<Self>()])
    }

    /// `None` for a tensor that holds NaN or infinity.
    pub fn norm(&self) -> Option<R24> {
        let norm = R24 { significand: self.norm_significand, exponent: self.norm_exponent };
        (norm.significand != u32::MAX).then_some(norm)
    }

    /// The norms of all tensors, by name.
    pub fn norms(bytes: &[u8], tensors: &[Tensor]) -> Vec<TensorNorm> {
        let norm = |i| Self::read(bytes, i).norm().map(R24::to_f64);
        tensors.iter().enumerate().map(|(i, t)| TensorNorm { name: t.name.clone(), norm: norm(i) }).collect()
    }
}

/// The norm of each tensor.
#[derive(Debug)]
pub(crate) struct TensorNorms {
    /// What is known of the tensors, which `tensor_factors` completes.
    pub clips: wgpu::Buffer,
    pub norms: Extra,
    memory_bytes: u64,
}

/// A limit for each tensor or element.
#[derive(Debug)]
pub(crate) struct EachTensor {
    factors: Extra,
    apply: wgpu::BindGroup,
    /// One for each dispatch.
    pipelines: Vec<wgpu::ComputePipeline>,
}

impl TensorNorms {
    /// `report`: of the step, or of a measurement.
    pub fn new(set: &GradSet, planned: &Planned, report: &wgpu::Buffer) -> Result<Self, Error> {
        let shared = &set.0.context.shared;
        let tensors = planned.layout.len().max(1);
        let ranges = ranges(planned, tensors);
        let most = shared.device.limits().max_compute_workgroups_per_dimension;
        let x = (tensors as u32).min(most);
        let groups = (x, (tensors as u32).div_ceil(x));
        let pipeline = shared.pipeline(Kernel::TensorNorms)?;
        guarded(&shared.device, "allocating tensor norms", || {
            use wgpu::BufferUsages as Usage;
            let ranges = filled(shared, "gradclip ranges", Usage::STORAGE, bytemuck::cast_slice(&ranges));
            let clips = vec![0; tensors * size_of::<GpuTensorClip>()];
            let usage = Usage::STORAGE | Usage::COPY_SRC;
            let clips = filled(shared, "gradclip tensor norms", usage, &clips);
            let memory_bytes = ranges.size() + clips.size();
            let resources = [
                ranges.as_entire_binding(),
                planned.scratch.partials.as_entire_binding(),
                clips.as_entire_binding(),
                planned.scratch.finish(),
                part(report, 0, HEAD_BYTES),
            ];
            let group = group(shared, &shared.layouts.tensor_norms, &resources);
            Self { clips, norms: Extra { pipeline, group, groups }, memory_bytes }
        })
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

impl EachTensor {
    /// After the norms of tensors were prepared.
    pub fn new(set: &GradSet, compiled: &Compiled) -> Result<Self, Error> {
        let shared = &set.0.context.shared;
        let scratch = &compiled.planned.scratch;
        let norms = compiled.planned.extras.tensor_norms.get();
        let norms = norms.ok_or_else(|| super::Prepare::TensorNorms.missing(set))?;
        let pipelines = compiled.pipelines(shared, Kernel::ApplyEach)?;
        let pipeline = shared.pipeline(Kernel::TensorFactors)?;
        guarded(&shared.device, "binding limits of tensors", || {
            let clips = norms.clips.as_entire_binding();
            let head = part(&set.0.report, 0, HEAD_BYTES);
            let resources = [(0, clips.clone()), (1, head), (3, scratch.finish())];
            let factors = numbered(shared, &shared.layouts.tensor_factors, &resources);
            let resources = [scratch.table.as_entire_binding(), own_of(&set.0.report), clips];
            let apply = group(shared, &shared.layouts.apply_each, &resources);
            Self { factors: Extra { pipeline, group: factors, groups: (1, 1) }, apply, pipelines }
        })
    }

    /// After the norms of the tensors.
    pub fn record_factors(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        step: &ring::Bound,
        scaler: &wgpu::BindGroup,
    ) {
        self.factors.record(pass, step, scaler);
    }

    pub fn record_apply(&self, compiled: &Compiled, pass: &mut wgpu::ComputePass<'_>) {
        compiled.record_write(pass, &self.apply, self.pipelines.iter());
    }
}

/// The twins of `struct Range` in `tensor_norms.wgsl`.
fn ranges(planned: &Planned, tensors: usize) -> Vec<[u32; 4]> {
    let mut ranges = vec![[0u32; 4]; tensors];
    for segment in &planned.plan.segments {
        let [first, count, rest, rest_count] = &mut ranges[segment.tensor];
        if *count == 0 {
            *first = segment.first_tile;
        }
        if *first + *count == segment.first_tile {
            *count += segment.tiles;
            continue;
        }
        if *rest_count == 0 {
            *rest = segment.first_tile;
        }
        *rest_count += segment.tiles;
    }
    ranges
}

impl GradSet {
    /// What the latest step that clipped each tensor by its norm did to each, in the order of the set, after everything
    /// submitted so far. Blocks, as [`GradSet::read_report`].
    ///
    /// # Errors
    /// [`Error::NotRun`] if none ran, if a step with a limit by value or one whose report has the norms of the tensors ran
    /// since and wrote in its place, or if [`GradSet::rebind`] had to plan anew; [`Error::Timeout`]; [`Error::DeviceLost`].
    pub fn read_tensor_clips(&self) -> Result<Vec<TensorClip>, Error> {
        let not_run = || Error::NotRun { set: self.0.name.clone() };
        let compiled = self.compiled();
        let norms = compiled.planned.extras.tensor_norms.get().ok_or_else(not_run)?;
        let whose = format!("set \"{}\"", self.0.name);
        let bytes = read_buffer(&self.0.context, &whose, &norms.clips, norms.clips.size())?;
        let clip = |i| {
            let clip = GpuTensorClip::read(&bytes, i);
            let coefficient =
                R24 { significand: clip.coefficient_significand, exponent: clip.coefficient_exponent };
            (clip.run != 0).then(|| TensorClip { norm: clip.norm(), coefficient }).ok_or_else(not_run)
        };
        (0..self.0.tensors.len()).map(clip).collect()
    }
}
