//! Tensors by themselves: their norms, and factors and limits of their own.

use std::sync::PoisonError;

use crate::gpu::compiled::{Compiled, Measure};
use crate::gpu::context::{Shared, filled, group, guarded};
use crate::gpu::readback::read_buffer;
use crate::gpu::shader::Kernel;
use crate::report::verdict_of;
use crate::{Error, GradSet, R24, TensorClip};

/// The twin of `struct TensorClip` in `tensor_clip.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct GpuTensorClip {
    norm_significand: u32,
    norm_exponent: i32,
    largest: u32,
    format: u32,
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
}

/// The kernels for tensors by themselves. `norms` writes, beside the norms, what `factors` completes.
#[derive(Debug, Clone)]
pub(crate) struct PerTensor {
    pub norms: Measure,
    factors: wgpu::BindGroup,
    apply: wgpu::BindGroup,
}

/// What limiting tensors by themselves runs beside `tensor_norms`.
#[derive(Debug)]
pub(crate) struct EachPipelines {
    factors: wgpu::ComputePipeline,
    /// One for each dispatch.
    applies: Vec<wgpu::ComputePipeline>,
}

/// Ready to record.
pub(crate) struct EachTensor<'a> {
    per_tensor: PerTensor,
    pipelines: &'a EachPipelines,
}

impl EachTensor<'_> {
    /// Records what follows `norm_finish`.
    pub fn record(&self, compiled: &Compiled, pass: &mut wgpu::ComputePass<'_>, step: &wgpu::BindGroup) {
        self.per_tensor.norms.record(pass, step);
        pass.set_pipeline(&self.pipelines.factors);
        pass.set_bind_group(0, &self.per_tensor.factors, &[]);
        pass.set_bind_group(1, step, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        compiled.record_write(pass, &self.per_tensor.apply, self.pipelines.applies.iter());
    }
}

impl Compiled {
    /// The norm of each tensor.
    pub fn tensor_norms(&self, shared: &Shared, report: &wgpu::Buffer) -> Result<Measure, Error> {
        Ok(self.made_per_tensor(shared, report)?.norms)
    }

    /// A limit for each tensor or element.
    pub fn each_tensor(&self, shared: &Shared, report: &wgpu::Buffer) -> Result<EachTensor<'_>, Error> {
        let per_tensor = self.made_per_tensor(shared, report)?;
        if let Some(pipelines) = self.each_pipelines.get() {
            return Ok(EachTensor { per_tensor, pipelines });
        }
        let made = EachPipelines {
            factors: shared.pipeline(Kernel::TensorFactors)?,
            applies: self.pipelines(shared, Kernel::ApplyEach)?,
        };
        Ok(EachTensor { per_tensor, pipelines: self.each_pipelines.get_or_init(|| made) })
    }

    /// Where the norms of the tensors were written, if they were ever asked for.
    pub fn tensor_norms_buffer(&self) -> Option<wgpu::Buffer> {
        let made = self.per_tensor.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref().map(|made| made.norms.output.clone())
    }

    fn made_per_tensor(&self, shared: &Shared, report: &wgpu::Buffer) -> Result<PerTensor, Error> {
        let mut made = self.per_tensor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(per_tensor) = &*made {
            return Ok(per_tensor.clone());
        }
        let tensors = self.layout.len().max(1);
        let ranges = self.ranges(tensors);
        let most = shared.device.limits().max_compute_workgroups_per_dimension;
        let x = (tensors as u32).min(most);
        let groups = (x, (tensors as u32).div_ceil(x));
        let pipeline = shared.pipeline(Kernel::TensorNorms)?;
        let per_tensor = guarded(&shared.device, "allocating tensor norms", || {
            use wgpu::BufferUsages as Usage;
            let ranges = filled(shared, "gradclip ranges", Usage::STORAGE, bytemuck::cast_slice(&ranges));
            let [first_f16, first_bf16] = self.plan.format_starts;
            // The twin of `struct Norms` in `tensor_norms.wgsl` and `tensor_factors.wgsl`.
            let info = [self.layout.len() as u32, first_f16, first_bf16, 0];
            let info = filled(shared, "gradclip norms", Usage::UNIFORM, bytemuck::cast_slice(&info));
            let usage = Usage::STORAGE | Usage::COPY_SRC;
            let clips = vec![0; tensors * size_of::<GpuTensorClip>()];
            let clips = filled(shared, "gradclip tensor norms", usage, &clips);
            let [table, partials] = [&self.scratch.table, &self.scratch.partials];
            let all = wgpu::Buffer::as_entire_binding;
            let verdict = wgpu::BindingResource::Buffer(verdict_of(report));
            let layouts = &shared.layouts;
            let norms = [all(&ranges), all(partials), all(&clips), all(&info)];
            let memory_bytes = ranges.size() + info.size() + clips.size();
            PerTensor {
                factors: group(shared, &layouts.tensor_factors, &[all(&clips), verdict, all(&info)]),
                apply: group(shared, &layouts.apply, &[all(table), all(&clips)]),
                norms: Measure {
                    group: group(shared, &layouts.tensor_norms, &norms),
                    output: clips,
                    pipeline,
                    groups,
                    memory_bytes,
                },
            }
        })?;
        Ok(made.insert(per_tensor).clone())
    }

    /// The twins of `struct Range` in `tensor_norms.wgsl`.
    fn ranges(&self, tensors: usize) -> Vec<[u32; 4]> {
        let mut ranges = vec![[0u32; 4]; tensors];
        for segment in &self.plan.segments {
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
}

impl GradSet {
    /// What the latest step that clipped each tensor by its norm did to each, in the order of the set, after everything
    /// submitted so far. Blocks, as [`GradSet::read_report`].
    ///
    /// # Errors
    /// [`Error::NotRun`] if none ran, if a step with a limit by value or one whose report has the norms of the tensors ran
    /// since and wrote in its place, or if [`GradSet::rebind`] had to plan anew; [`Error::Timeout`]; [`Error::Wgpu`] if the
    /// device was lost.
    pub fn read_tensor_clips(&self) -> Result<Vec<TensorClip>, Error> {
        let not_run = || Error::NotRun { set: self.name.clone() };
        let buffer = self.compiled.tensor_norms_buffer().ok_or_else(not_run)?;
        let whose = format!("set \"{}\"", self.name);
        let bytes = read_buffer(&self.context, &whose, &buffer, buffer.size())?;
        let clip = |i| {
            let clip = GpuTensorClip::read(&bytes, i);
            let coefficient =
                R24 { significand: clip.coefficient_significand, exponent: clip.coefficient_exponent };
            (clip.run != 0).then(|| TensorClip { norm: clip.norm(), coefficient }).ok_or_else(not_run)
        };
        (0..self.tensors.len()).map(clip).collect()
    }
}
