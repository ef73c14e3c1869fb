//! The gradients of one optimizer: one plan, one norm, one verdict.

mod builder;
mod compiled;
mod joint;
mod measure;
mod open;
mod params;
mod per_tensor;
mod prepare;
mod probe;
mod read;
mod record;
mod shard;
mod state;

pub use builder::GradSetBuilder;
pub use joint::Joint;
pub use measure::{Measure, Measured, Measurement};
pub use open::Members;
pub(crate) use open::Ticket;
pub(crate) use params::Told;
pub(crate) use per_tensor::GpuTensorClip;
pub use prepare::Prepare;
pub(crate) use record::Also;
pub(crate) use shard::Half;
pub use state::SetState;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::gpu::bound::Gradients;
use crate::gpu::scratch::Scratch;
use crate::plan::{Plan, PlanLimits, lay_out};
use crate::report::verdict_of;
use crate::slice::Tensor;
use crate::{Context, Error, TensorSlice};
use compiled::Compiled;

/// All gradients of one optimizer. They share one norm, one factor and one verdict.
///
/// A handle: cheap to clone and to store, and shared between threads. The buffers stay the engine's: a set keeps handles to
/// them and writes nothing outside the slices it was given. Gradients belong to one set: a second set over the same bytes
/// would unscale them a second time, which a [`GradScaler`](crate::GradScaler) refuses.
#[derive(Debug, Clone)]
pub struct GradSet(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub name: String,
    pub context: Context,
    pub tensors: Arc<[Tensor]>,
    pub report: wgpu::Buffer,
    pub id: u64,
    /// Whether other open sets may lie where this one does.
    pub shares: bool,
    /// Verdict and state, for kernels that change them.
    pub head_group: wgpu::BindGroup,
    /// Steps recorded.
    recorded: AtomicU64,
    open: Mutex<Option<Ticket>>,
    compiled: RwLock<Arc<Compiled>>,
    /// Held while the set is planned, prepared or bound anew.
    rebinding: Mutex<()>,
    sharding: Mutex<shard::Sharding>,
    limits: PlanLimits,
    norm_finish: wgpu::ComputePipeline,
}

impl GradSet {
    /// Starts a set. The name is that of its optimizer and appears in errors, reports and states.
    pub fn builder<'a>(name: impl Into<String>) -> GradSetBuilder<'a> {
        GradSetBuilder::new(name.into())
    }

    /// The name of the set.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Elements in all tensors.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.0.tensors.iter().map(|t| t.len).sum()
    }

    /// Bytes of GPU memory that the set holds beside the gradients: tables, partials, report. What a driver adds to each
    /// buffer is not in it, nor the 64 KiB of a context that the numbers of all its sets' steps go through.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.0.report.size() + self.compiled().memory_bytes()
    }

    /// The plan, for those who want to see how the work is cut.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.compiled().planned.plan.clone()
    }

    /// The verdict of the latest step as a storage binding for the engine's own kernels, laid out as
    /// `struct GradclipVerdict` in [`VERDICT_WGSL`](crate::VERDICT_WGSL). Before any step ran it says `skip`. The buffer stays
    /// the same for the life of the set.
    ///
    /// | step | what was written | what the verdict says | what your kernel does |
    /// | --- | --- | --- | --- |
    /// | in place, any limit | every scaled gradient | `skip` 0, `apply` 0, `factor` 1 | steps with the gradients as they are |
    /// | deferred | nothing | `skip` 0, `apply` 1 or 2, the factor | steps with the gradients times the factor |
    /// | deferred, factor 1 | nothing | `skip` 0, `apply` 0, `factor` 1 | steps with the gradients as they are |
    /// | skipped, whatever the reason | nothing | `skip` 1 and the reason | returns, and changes nothing |
    /// | none has run yet | nothing | `skip` 1 | returns |
    ///
    /// So one kernel serves all: return if `skip` is 1, else step with
    /// [`gradclip_scaled_gradient(verdict, gradient)`](crate::scaled_wgsl). Skip by a branch or a select, never by multiplying
    /// with 0, which makes NaN of infinity. `taken` is AdamW's t.
    #[must_use]
    pub fn verdict(&self) -> wgpu::BufferBinding<'_> {
        verdict_of(&self.0.report)
    }

    /// Points the set at other buffers of the same shapes. If they share buffers at the same offsets as before, the plan
    /// and everything but the bind groups is kept; else the set is planned anew. Steps recorded before keep the old
    /// buffers; an open step that is recorded later takes the new ones. The verdict's buffer and the state stay.
    ///
    /// # Errors
    /// [`Error::TensorCount`] or [`Error::Shape`] if it is not the same list of tensors, else as
    /// [`GradSetBuilder::build`]; the set then stays as it was.
    pub fn rebind(&self, slices: &[TensorSlice<'_>]) -> Result<(), Error> {
        if slices.len() != self.0.tensors.len() {
            return Err(Error::TensorCount {
                set: self.0.name.clone(),
                expected: self.0.tensors.len(),
                given: slices.len(),
            });
        }
        for (tensor, slice) in self.0.tensors.iter().zip(slices) {
            if (tensor.len, tensor.format) != (slice.len, slice.format) {
                return Err(Error::Shape {
                    tensor: tensor.name.clone(),
                    expected_len: tensor.len,
                    expected_format: tensor.format,
                    len: slice.len,
                    format: slice.format,
                });
            }
        }
        let shared = &self.0.context.shared;
        let layout = lay_out(&self.0.tensors, slices)?;
        let buffers: Vec<wgpu::Buffer> = slices.iter().map(|s| s.buffer.clone()).collect();
        let gradients =
            Gradients { set: &self.0.name, tensors: &self.0.tensors, layout: &layout, buffers: &buffers };
        let _alone = self.0.rebinding.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.compiled();
        let compiled = if layout == old.planned.layout {
            old.rebound(shared, &gradients)?
        } else {
            let plan = Plan::new(&layout, &self.0.limits)?;
            let scratch = Scratch::new(shared, &self.0.name, &plan, self.0.tensors.len())?;
            let compiled = Compiled::new(shared, plan, &gradients, scratch, &self.0.report)?;
            for what in Prepare::ALL.into_iter().filter(|&what| old.prepared(what)) {
                compiled.prepare(self, what)?;
            }
            compiled
        };
        *self.0.compiled.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(compiled);
        self.forget_ledger();
        Ok(())
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Whether other open sets may lie where this one does.
    pub(crate) fn shares(&self) -> bool {
        self.0.shares
    }

    pub(crate) fn head_group(&self) -> &wgpu::BindGroup {
        &self.0.head_group
    }

    pub(crate) fn report(&self) -> &wgpu::Buffer {
        &self.0.report
    }

    pub(crate) fn tensors(&self) -> &Arc<[Tensor]> {
        &self.0.tensors
    }

    pub(crate) fn compiled(&self) -> Arc<Compiled> {
        Arc::clone(&self.0.compiled.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A step that a report can be of.
    fn count_recorded(&self) {
        self.0.recorded.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether both are the same set.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn downgrade(&self) -> WeakSet {
        WeakSet(Arc::downgrade(&self.0))
    }
}

/// A set that may be gone.
#[derive(Debug, Clone)]
pub(crate) struct WeakSet(std::sync::Weak<Inner>);

impl WeakSet {
    pub fn upgrade(&self) -> Option<GradSet> {
        self.0.upgrade().map(GradSet)
    }
}
