//! Compiling what a kind of step needs, before training.

use std::sync::PoisonError;

use super::compiled::{Compiled, EachCounted, Finish, Lost, finish_group, own_of};
use super::measure::Meter;
use super::per_tensor::{EachTensor, TensorNorms};
use super::shard::ShardKernels;
use super::{GradSet, builder::new_report};
use crate::Error;
use crate::gpu::context::Shared;
use crate::gpu::guard::guarded;
use crate::gpu::make::{filled, group, numbered};
use crate::gpu::shader::Kernel;
use crate::report::LOST_BYTES;

/// What a step can need beside what every set has. Recording compiles and allocates nothing: what was not
/// [prepared](GradSet::prepare) is [`Error::NotPrepared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prepare {
    /// Steps and measurements with an L1 norm.
    L1,
    /// Norms of tensors in reports.
    TensorNorms,
    /// [`Limit::each_tensor`](crate::Limit::each_tensor) and [`Limit::value`](crate::Limit::value).
    EachTensor,
    /// The norm after a step.
    NormAfter,
    /// Halves of sharded steps.
    Ledger,
    /// Counts of what became 0.
    Lost,
    /// [`GradSet::measure`].
    Measure,
}

impl Prepare {
    /// Everything.
    pub const ALL: [Self; 7] = [
        Self::L1,
        Self::TensorNorms,
        Self::EachTensor,
        Self::NormAfter,
        Self::Ledger,
        Self::Lost,
        Self::Measure,
    ];

    pub(crate) fn missing(self, set: &GradSet) -> Error {
        let what = match self {
            Self::L1 => "L1",
            Self::TensorNorms => "TensorNorms",
            Self::EachTensor => "EachTensor",
            Self::NormAfter => "NormAfter",
            Self::Ledger => "Ledger",
            Self::Lost => "Lost",
            Self::Measure => "Measure",
        };
        Error::NotPrepared { set: set.name().into(), what }
    }
}

impl GradSet {
    /// Compiles and allocates what these kinds of steps need. Once, before training; [`GradSet::rebind`] keeps it. What is
    /// prepared already costs nothing.
    ///
    /// # Errors
    /// [`Error::Wgpu`] if wgpu refuses a kernel or a buffer; [`Error::DeviceLost`].
    pub fn prepare(&self, kinds: impl IntoIterator<Item = Prepare>) -> Result<(), Error> {
        let _alone = self.0.rebinding.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = self.compiled();
        kinds.into_iter().try_for_each(|kind| compiled.prepare(self, kind))
    }
}

impl Compiled {
    pub fn prepared(&self, kind: Prepare) -> bool {
        let extras = &self.planned.extras;
        match kind {
            Prepare::L1 => extras.l1_partials.get().is_some(),
            Prepare::TensorNorms => extras.tensor_norms.get().is_some(),
            Prepare::EachTensor => extras.each_tensor.get().is_some(),
            Prepare::NormAfter => extras.norm_after.get().is_some(),
            Prepare::Ledger => extras.ledger.get().is_some(),
            Prepare::Lost => extras.lost.get().is_some(),
            Prepare::Measure => extras.meter.get().is_some(),
        }
    }

    /// Called by one thread at a time.
    pub fn prepare(&self, set: &GradSet, kind: Prepare) -> Result<(), Error> {
        if self.prepared(kind) {
            return Ok(());
        }
        let shared = &set.0.context.shared;
        let extras = &self.planned.extras;
        // Each is set once, since this thread is alone.
        match kind {
            Prepare::L1 => {
                let _ = extras.l1_partials.set(self.pipelines(shared, Kernel::L1Partials)?);
            }
            Prepare::TensorNorms => {
                let _ = extras.tensor_norms.set(TensorNorms::new(set, &self.planned, &set.0.report)?);
            }
            Prepare::EachTensor => {
                self.prepare(set, Prepare::TensorNorms)?;
                let _ = extras.each_tensor.set(EachTensor::new(set, self)?);
            }
            Prepare::NormAfter => {
                let report = new_report(&set.0.context, set.name(), set.0.tensors.len())?;
                let group = guarded(&shared.device, "binding the norm after", || {
                    finish_group(shared, &self.planned.scratch, &report)
                })?;
                let _ = extras.norm_after.set(Finish { report, group });
            }
            Prepare::Ledger => {
                let _ = extras.ledger.set(ShardKernels::new(shared, &self.planned)?);
            }
            Prepare::Lost => {
                let _ = extras.lost.set(self.lost(set)?);
            }
            Prepare::Measure => {
                let _ = extras.meter.set(Meter::new(set, &self.planned)?);
            }
        }
        self.prepare_both(set)
    }

    /// What two kinds need together.
    fn prepare_both(&self, set: &GradSet) -> Result<(), Error> {
        let extras = &self.planned.extras;
        let (Some(norms), Some(lost)) = (extras.tensor_norms.get(), extras.lost.get()) else { return Ok(()) };
        if extras.each_tensor.get().is_none() || extras.each_counted.get().is_some() {
            return Ok(());
        }
        let shared = &set.0.context.shared;
        // Without room for both, a step that asks for both is refused.
        if self.check_each_counted(shared).is_err() {
            return Ok(());
        }
        let pipelines = self.pipelines(shared, Kernel::ApplyEachCounted)?;
        let apply = guarded(&shared.device, "binding counts", || {
            let resources = [
                self.planned.scratch.table.as_entire_binding(),
                own_of(&set.0.report),
                norms.clips.as_entire_binding(),
                lost.counts.as_entire_binding(),
            ];
            group(shared, &shared.layouts.apply_each_counted, &resources)
        })?;
        let _ = extras.each_counted.set(EachCounted { apply, pipelines });
        Ok(())
    }

    /// Whether the device binds four buffers beside the windows of a dispatch.
    pub fn check_each_counted(&self, shared: &Shared) -> Result<(), Error> {
        let limit = "max_storage_buffers_per_shader_stage";
        let windows = self.dispatches.iter().map(|dispatch| dispatch.shape.2).max().unwrap_or(0);
        let has = u64::from(shared.device.limits().max_storage_buffers_per_shader_stage);
        let needed = u64::from(windows) + 4;
        if needed > has { Err(Error::DeviceLimit { limit, needed, has }) } else { Ok(()) }
    }

    fn lost(&self, set: &GradSet) -> Result<Lost, Error> {
        let shared = &set.0.context.shared;
        let pipelines = self.pipelines(shared, Kernel::ApplyCounted)?;
        let clear_pipeline = shared.pipeline(Kernel::LostClear)?;
        let (counts, clear, apply) = guarded(&shared.device, "allocating counts", || {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
            let bytes = vec![0; set.0.tensors.len().max(1) * LOST_BYTES as usize];
            let counts = filled(shared, "gradclip counts", usage, &bytes);
            let resources = [(0, counts.as_entire_binding()), (3, self.planned.scratch.finish())];
            let clear = numbered(shared, &shared.layouts.lost_clear, &resources);
            let resources = [
                (0, self.planned.scratch.table.as_entire_binding()),
                (1, own_of(&set.0.report)),
                (3, counts.as_entire_binding()),
            ];
            let apply = numbered(shared, &shared.layouts.apply_counted, &resources);
            (counts, clear, apply)
        })?;
        Ok(Lost { counts, clear, clear_pipeline, apply, pipelines })
    }
}
