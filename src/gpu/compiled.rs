//! A plan turned into buffers, bind groups and pipelines of one device.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::gpu::bound::{Bound, Gradients, bind, padded};
use crate::gpu::context::{Shared, empty, filled, group, guarded};
use crate::gpu::shader::Kernel;
use crate::grad_set::per_tensor::{EachPipelines, PerTensor};
use crate::grad_set::shard::Shard;
use crate::plan::{Access, PARTIAL_BYTES, Plan, PlanTensor};
use crate::report::{CENSUS_BYTES, VERDICT_BYTES, verdict_of};
use crate::{Error, Format, NormType, grad_set::not_run};

/// Uniform slots and spare windows are this far apart: WebGPU's largest alignment.
pub(crate) const STRIDE: u64 = 256;

/// The twin of `struct Dispatch` in `tile.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct DispatchUniform {
    first_tile: u32,
    tile_count: u32,
    tile_words: u32,
    tiles_at: u32,
    zero: u32,
}

/// The twin of `struct Finish` in `norm_finish.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FinishUniform {
    tile_count: u32,
    first_f16: u32,
    first_bf16: u32,
    tensor_count: u32,
    tiles_at: u32,
    tile_words: u32,
}

/// The buffers that a set owns beside its report.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub table: wgpu::Buffer,
    pub partials: wgpu::Buffer,
    /// One slot for norm_finish, then one a dispatch.
    uniforms: wgpu::Buffer,
    /// Stands in for windows that a dispatch does not use.
    pub spare: wgpu::Buffer,
    report_bytes: u64,
}

impl Scratch {
    pub fn new(shared: &Shared, set: &str, plan: &Plan, tensors: usize) -> Result<Self, Error> {
        let limits = shared.device.limits();
        let table = plan.table();
        let partial_bytes = u64::from(plan.tiles.max(1)) * PARTIAL_BYTES;
        let report_bytes = VERDICT_BYTES + (tensors.max(1) as u64) * CENSUS_BYTES;
        let uniforms = uniform_bytes(plan, tensors);
        let binding = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
        for (what, bytes, limit) in [
            ("partials", partial_bytes, binding),
            ("tile table", table.len() as u64 * 4, binding),
            ("report", report_bytes, binding),
            ("uniforms", uniforms.len() as u64, limits.max_buffer_size),
        ] {
            if bytes > limit {
                return Err(Error::Scratch { set: set.into(), what, bytes, limit });
            }
        }
        let widest = plan.dispatches.iter().map(|d| padded(d, plan)).max().unwrap_or(1);
        let storage = wgpu::BufferUsages::STORAGE;
        guarded(&shared.device, &format!("set \"{set}\": allocating"), || Self {
            table: filled(shared, "gradclip table", storage, bytemuck::cast_slice(&table)),
            partials: empty(shared, "gradclip partials", partial_bytes),
            uniforms: filled(shared, "gradclip uniforms", wgpu::BufferUsages::UNIFORM, &uniforms),
            spare: empty(shared, "gradclip spare", STRIDE * u64::from(widest)),
            report_bytes,
        })
    }

    /// The buffer of the verdict and the per-tensor counts.
    pub fn new_report(&self, shared: &Shared) -> Result<wgpu::Buffer, Error> {
        guarded(&shared.device, "allocating a report", || {
            let mut bytes = vec![0; self.report_bytes as usize];
            bytes[..VERDICT_BYTES as usize].copy_from_slice(&not_run());
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
            filled(shared, "gradclip report", usage, &bytes)
        })
    }
}

/// Everything that recording needs, ready made.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub plan: Plan,
    pub layout: Vec<PlanTensor>,
    pub norm_finish: wgpu::BindGroup,
    pub scratch: Scratch,
    norm_partials: wgpu::BindGroup,
    apply: wgpu::BindGroup,
    dispatches: Vec<Bound>,
    /// Made when a step first asks for them.
    after: Mutex<Option<Measure>>,
    shard_ledger: Mutex<Option<Measure>>,
    pub per_tensor: Mutex<Option<PerTensor>>,
    pub each_pipelines: OnceLock<EachPipelines>,
    l1_partials: OnceLock<Vec<wgpu::ComputePipeline>>,
}

/// A kernel beside the step, and what it writes.
#[derive(Debug, Clone)]
pub(crate) struct Measure {
    pub output: wgpu::Buffer,
    pub pipeline: wgpu::ComputePipeline,
    pub group: wgpu::BindGroup,
    pub groups: (u32, u32),
    pub memory_bytes: u64,
}

impl Measure {
    pub fn record(&self, pass: &mut wgpu::ComputePass<'_>, step: &wgpu::BindGroup) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.set_bind_group(1, step, &[]);
        pass.dispatch_workgroups(self.groups.0, self.groups.1, 1);
    }
}

impl Compiled {
    pub fn new(
        shared: &Shared,
        plan: Plan,
        gradients: Gradients<'_>,
        scratch: Scratch,
        report: &wgpu::Buffer,
    ) -> Result<Self, Error> {
        let set = gradients.set;
        let verdict = wgpu::BindingResource::Buffer(verdict_of(report));
        let (table, partials) = (scratch.table.as_entire_binding(), scratch.partials.as_entire_binding());
        let layouts = &shared.layouts;
        let (norm_partials, norm_finish, apply) = guarded(&shared.device, &format!("set \"{set}\""), || {
            let finish = uniform(&scratch, 0, size_of::<FinishUniform>());
            (
                group(shared, &layouts.norm_partials, &[table.clone(), partials.clone()]),
                group(
                    shared,
                    &layouts.norm_finish,
                    &[table.clone(), partials, report.as_entire_binding(), finish],
                ),
                group(shared, &layouts.apply, &[table, verdict]),
            )
        })?;
        let dispatches = bind(shared, &plan, &gradients, &scratch)?;
        let layout = gradients.layout.to_vec();
        Ok(Self {
            plan,
            layout,
            norm_finish,
            scratch,
            norm_partials,
            apply,
            dispatches,
            after: Mutex::default(),
            shard_ledger: Mutex::default(),
            per_tensor: Mutex::default(),
            each_pipelines: OnceLock::new(),
            l1_partials: OnceLock::new(),
        })
    }

    /// Points the dispatches at other buffers with the same layout.
    pub fn rebind(&mut self, shared: &Shared, gradients: &Gradients<'_>) -> Result<(), Error> {
        self.dispatches = bind(shared, &self.plan, gradients, &self.scratch)?;
        Ok(())
    }

    pub fn memory_bytes(&self) -> u64 {
        let Scratch { table, partials, uniforms, spare, report_bytes: _ } = &self.scratch;
        let measures = [&self.after, &self.shard_ledger].map(|made| {
            let made = made.lock().unwrap_or_else(PoisonError::into_inner);
            made.as_ref().map_or(0, |measure| measure.memory_bytes)
        });
        let per_tensor = self.per_tensor.lock().unwrap_or_else(PoisonError::into_inner);
        let per_tensor = per_tensor.as_ref().map_or(0, |made| made.norms.memory_bytes);
        let own = [table, partials, uniforms, spare].map(wgpu::Buffer::size);
        own.iter().chain(&measures).sum::<u64>() + per_tensor
    }

    /// `norm_finish` once more, into a report of its own.
    pub fn after(&self, shared: &Shared) -> Result<Measure, Error> {
        let mut made = self.after.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(measure) = &*made {
            return Ok(measure.clone());
        }
        let output = self.scratch.new_report(shared)?;
        let pipeline = shared.pipeline(Kernel::NormFinish)?;
        let group = guarded(&shared.device, "binding the norm after", || {
            let resources = [
                self.scratch.table.as_entire_binding(),
                self.scratch.partials.as_entire_binding(),
                output.as_entire_binding(),
                uniform(&self.scratch, 0, size_of::<FinishUniform>()),
            ];
            group(shared, &shared.layouts.norm_finish, &resources)
        })?;
        let memory_bytes = output.size();
        Ok(made.insert(Measure { output, pipeline, group, groups: (1, 1), memory_bytes }).clone())
    }

    /// The sums of a part of a sharded set.
    pub fn shard_ledger(&self, shared: &Shared) -> Result<Measure, Error> {
        let mut made = self.shard_ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(measure) = &*made {
            return Ok(measure.clone());
        }
        let pipeline = shared.pipeline(Kernel::ShardLedger)?;
        let (output, group) = guarded(&shared.device, "allocating a ledger", || {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
            let output = filled(shared, "gradclip ledger", usage, &[0; size_of::<Shard>()]);
            let resources = [
                self.scratch.partials.as_entire_binding(),
                output.as_entire_binding(),
                // Its `struct Source` is the start of `struct Finish`.
                uniform(&self.scratch, 0, size_of::<FinishUniform>()),
            ];
            let group = group(shared, &shared.layouts.shard_ledger, &resources);
            (output, group)
        })?;
        let memory_bytes = output.size();
        Ok(made.insert(Measure { output, pipeline, group, groups: (1, 1), memory_bytes }).clone())
    }

    /// Where the norm after was written, if it was ever asked for.
    pub fn after_buffer(&self) -> Option<wgpu::Buffer> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|m| m.output.clone())
    }

    /// The pipelines of a read pass for a norm, where they are not those that every set has.
    pub fn partials(
        &self,
        shared: &Shared,
        norm_type: NormType,
    ) -> Result<Option<&[wgpu::ComputePipeline]>, Error> {
        // The partials of an L2 norm hold the largest magnitude too.
        if norm_type != NormType::L1 {
            return Ok(None);
        }
        if let Some(made) = self.l1_partials.get() {
            return Ok(Some(made));
        }
        let made = self.pipelines(shared, Kernel::L1Partials)?;
        Ok(Some(self.l1_partials.get_or_init(|| made)))
    }

    /// A pipeline for each dispatch.
    pub fn pipelines(
        &self,
        shared: &Shared,
        kernel: impl Fn(Format, Access, u32) -> Kernel,
    ) -> Result<Vec<wgpu::ComputePipeline>, Error> {
        let kernels = self.dispatches.iter().map(|d| kernel(d.shape.0, d.shape.1, d.shape.2));
        kernels.map(|kernel| shared.pipeline(kernel)).collect()
    }

    /// `special`: from [`Compiled::partials`].
    pub fn record_norm_partials(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        special: Option<&[wgpu::ComputePipeline]>,
    ) {
        pass.set_bind_group(0, &self.norm_partials, &[]);
        for (i, dispatch) in self.dispatches.iter().enumerate() {
            let special = special.and_then(|pipelines| pipelines.get(i));
            pass.set_pipeline(special.unwrap_or(&dispatch.norm_partials));
            pass.set_bind_group(1, &dispatch.read, &[]);
            pass.dispatch_workgroups(dispatch.groups.0, dispatch.groups.1, 1);
        }
    }

    pub fn record_apply(&self, pass: &mut wgpu::ComputePass<'_>) {
        let pipelines = self.dispatches.iter().map(|dispatch| &dispatch.apply);
        self.record_write(pass, &self.apply, pipelines);
    }

    /// The write pass, with the factors of `group`.
    pub fn record_write<'a>(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        group: &wgpu::BindGroup,
        pipelines: impl Iterator<Item = &'a wgpu::ComputePipeline>,
    ) {
        pass.set_bind_group(0, group, &[]);
        for (dispatch, pipeline) in self.dispatches.iter().zip(pipelines) {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(1, &dispatch.write, &[]);
            pass.dispatch_workgroups(dispatch.groups.0, dispatch.groups.1, 1);
        }
    }
}

fn uniform_bytes(plan: &Plan, tensors: usize) -> Vec<u8> {
    let mut bytes = vec![0; (plan.dispatches.len() + 1) * STRIDE as usize];
    let mut put = |slot: usize, value: &[u8]| {
        let at = slot * STRIDE as usize;
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    put(
        0,
        bytemuck::bytes_of(&FinishUniform {
            tile_count: plan.tiles,
            first_f16: plan.format_starts[0],
            first_bf16: plan.format_starts[1],
            tensor_count: tensors as u32,
            tiles_at: plan.tiles_at(),
            tile_words: plan.tile_words,
        }),
    );
    for (i, dispatch) in plan.dispatches.iter().enumerate() {
        put(
            i + 1,
            bytemuck::bytes_of(&DispatchUniform {
                first_tile: dispatch.first_tile,
                tile_count: dispatch.tiles,
                tile_words: plan.tile_words,
                tiles_at: plan.tiles_at(),
                zero: 0,
            }),
        );
    }
    bytes
}

pub(crate) fn uniform(scratch: &Scratch, slot: u64, size: usize) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding {
        buffer: &scratch.uniforms,
        offset: slot * STRIDE,
        // Uniform structs are padded to 16 bytes.
        size: wgpu::BufferSize::new((size as u64).next_multiple_of(16)),
    })
}
