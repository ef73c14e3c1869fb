//! A plan turned into buffers, bind groups and pipelines of one device.

use std::sync::{Arc, Mutex, OnceLock};

use super::joint::Groups;
use super::measure::Meter;
use super::open::Spans;
use super::per_tensor::{EachTensor, TensorNorms};
use super::shard::ShardKernels;
use crate::gpu::bound::{Bound, Gradients, bind};
use crate::gpu::context::Shared;
use crate::gpu::guard::guarded;
use crate::gpu::make::{group, part};
use crate::gpu::ring;
use crate::gpu::scratch::Scratch;
use crate::gpu::shader::Kernel;
use crate::plan::{Access, Plan, PlanTensor};
use crate::report::OWN_AT;
use crate::{Error, Format};

/// Everything that recording needs, ready made.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub planned: Arc<Planned>,
    pub dispatches: Vec<Bound>,
    pub spans: Spans,
}

/// What does not change where only the buffers do.
#[derive(Debug)]
pub(crate) struct Planned {
    pub plan: Plan,
    pub layout: Vec<PlanTensor>,
    pub scratch: Scratch,
    pub norm_finish: wgpu::BindGroup,
    norm_partials: wgpu::BindGroup,
    apply: wgpu::BindGroup,
    pub extras: Extras,
}

/// What kinds of steps need beside the usual one, made when they are prepared.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// A pipeline for each dispatch.
    pub l1_partials: OnceLock<Vec<wgpu::ComputePipeline>>,
    pub tensor_norms: OnceLock<TensorNorms>,
    pub each_tensor: OnceLock<EachTensor>,
    pub norm_after: OnceLock<Finish>,
    pub ledger: OnceLock<ShardKernels>,
    pub lost: OnceLock<Lost>,
    /// Both together.
    pub each_counted: OnceLock<EachCounted>,
    pub meter: OnceLock<Meter>,
    /// By the buffer of a joint norm that the set is part of.
    pub joined: OnceLock<Mutex<Vec<(wgpu::Buffer, Groups)>>>,
}

/// `norm_finish` into a report of its own.
#[derive(Debug)]
pub(crate) struct Finish {
    pub report: wgpu::Buffer,
    pub group: wgpu::BindGroup,
}

/// Counting what a step in place loses.
#[derive(Debug)]
pub(crate) struct Lost {
    pub counts: wgpu::Buffer,
    pub clear: wgpu::BindGroup,
    pub clear_pipeline: wgpu::ComputePipeline,
    pub apply: wgpu::BindGroup,
    /// A pipeline for each dispatch.
    pub pipelines: Vec<wgpu::ComputePipeline>,
}

/// Counting what a step loses whose limit holds for each tensor or element.
#[derive(Debug)]
pub(crate) struct EachCounted {
    pub apply: wgpu::BindGroup,
    /// A pipeline for each dispatch.
    pub pipelines: Vec<wgpu::ComputePipeline>,
}

/// One dispatch beside the step.
#[derive(Debug)]
pub(crate) struct Extra {
    pub pipeline: wgpu::ComputePipeline,
    pub group: wgpu::BindGroup,
    pub groups: (u32, u32),
}

impl Extra {
    /// `scaler`: the group of its state.
    pub fn record(&self, pass: &mut wgpu::ComputePass<'_>, step: &ring::Bound, scaler: &wgpu::BindGroup) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        step.set(pass);
        pass.set_bind_group(2, scaler, &[]);
        pass.dispatch_workgroups(self.groups.0, self.groups.1, 1);
    }
}

impl Compiled {
    pub fn new(
        shared: &Shared,
        plan: Plan,
        gradients: &Gradients<'_>,
        scratch: Scratch,
        report: &wgpu::Buffer,
    ) -> Result<Self, Error> {
        let set = gradients.set;
        let layouts = &shared.layouts;
        let (norm_partials, norm_finish, apply) = guarded(&shared.device, &format!("set \"{set}\""), || {
            let table = scratch.table.as_entire_binding();
            let partials = scratch.partials.as_entire_binding();
            (
                group(shared, &layouts.norm_partials, &[table.clone(), partials]),
                finish_group(shared, &scratch, report),
                group(shared, &layouts.apply, &[table, own_of(report)]),
            )
        })?;
        let dispatches = bind(shared, &plan, gradients, &scratch)?;
        let layout = gradients.layout.to_vec();
        let planned =
            Planned { plan, layout, scratch, norm_finish, norm_partials, apply, extras: Extras::default() };
        let spans = Spans::new(gradients.layout, gradients.buffers);
        Ok(Self { planned: Arc::new(planned), dispatches, spans })
    }

    /// The same over other buffers with the same layout.
    pub fn rebound(&self, shared: &Shared, gradients: &Gradients<'_>) -> Result<Self, Error> {
        let planned = Arc::clone(&self.planned);
        let dispatches = bind(shared, &planned.plan, gradients, &planned.scratch)?;
        Ok(Self { planned, dispatches, spans: Spans::new(gradients.layout, gradients.buffers) })
    }

    pub fn memory_bytes(&self) -> u64 {
        let extras = &self.planned.extras;
        let after = extras.norm_after.get().map_or(0, |made| made.report.size());
        let lost = extras.lost.get().map_or(0, |made| made.counts.size());
        let norms = extras.tensor_norms.get().map_or(0, TensorNorms::memory_bytes);
        let ledger = extras.ledger.get().map_or(0, |made| made.output.size());
        let meter = extras.meter.get().map_or(0, Meter::memory_bytes);
        self.planned.scratch.memory_bytes() + after + lost + norms + ledger + meter
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

    /// The read pass. `special`: the pipelines of a norm that is not the usual one.
    pub fn record_norm_partials(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        special: Option<&[wgpu::ComputePipeline]>,
    ) {
        pass.set_bind_group(0, &self.planned.norm_partials, &[]);
        for (i, dispatch) in self.dispatches.iter().enumerate() {
            let special = special.and_then(|pipelines| pipelines.get(i));
            pass.set_pipeline(special.unwrap_or(&dispatch.norm_partials));
            pass.set_bind_group(1, &dispatch.read, &[]);
            pass.dispatch_workgroups(dispatch.groups.0, dispatch.groups.1, 1);
        }
    }

    /// The usual write pass.
    pub fn record_apply(&self, pass: &mut wgpu::ComputePass<'_>) {
        let pipelines = self.dispatches.iter().map(|dispatch| &dispatch.apply);
        self.record_write(pass, &self.planned.apply, pipelines);
    }

    /// A write pass, with the factors of `group`.
    pub fn record_write<'a>(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        group: &wgpu::BindGroup,
        pipelines: impl Iterator<Item = &'a wgpu::ComputePipeline>,
    ) {
        pass.set_bind_group(0, group, &[]);
        for (dispatch, pipeline) in self.dispatches.iter().zip(pipelines).filter(|(d, _)| d.scaled) {
            pass.set_pipeline(pipeline);
            pass.set_bind_group(1, &dispatch.write, &[]);
            pass.dispatch_workgroups(dispatch.groups.0, dispatch.groups.1, 1);
        }
    }
}

/// What norm_finish binds, with a report of any set of the plan.
pub(crate) fn finish_group(shared: &Shared, scratch: &Scratch, report: &wgpu::Buffer) -> wgpu::BindGroup {
    let resources = [
        scratch.table.as_entire_binding(),
        scratch.partials.as_entire_binding(),
        report.as_entire_binding(),
        scratch.finish(),
    ];
    group(shared, &shared.layouts.norm_finish, &resources)
}

/// What the write pass reads of a report.
pub(crate) fn own_of(report: &wgpu::Buffer) -> wgpu::BindingResource<'_> {
    part(report, OWN_AT, OWN_AT)
}
