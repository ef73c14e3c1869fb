//! From tensors to a set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::compiled::Compiled;
use super::probe::WORTH_TILES;
use super::{GradSet, Inner};
use crate::gpu::bound::Gradients;
use crate::gpu::guard::guarded;
use crate::gpu::make::{filled, group, part};
use crate::gpu::scratch::Scratch;
use crate::gpu::shader::Kernel;
use crate::plan::{Plan, PlanLimits, check_names, lay_out};
use crate::report::{CENSUS_BYTES, HEAD_BYTES, VERDICT_BYTES};
use crate::slice::{Gradient, Tensor};
use crate::{Context, Error, TensorSlice, Verdict};

/// Collects the tensors of a [`GradSet`].
#[derive(Debug)]
#[must_use]
pub struct GradSetBuilder<'a> {
    name: String,
    tensors: Vec<Tensor>,
    slices: Vec<TensorSlice<'a>>,
    limits: Option<PlanLimits>,
    shares: bool,
}

impl<'a> GradSetBuilder<'a> {
    pub(super) fn new(name: String) -> Self {
        Self { name, tensors: Vec::new(), slices: Vec::new(), limits: None, shares: false }
    }

    /// Adds a tensor. The order is that of reports; it changes no result. A [`TensorSlice`] is counted in the norm and
    /// scaled; [`TensorSlice::outside_norm`] and [`TensorSlice::measured_only`] do one of both.
    pub fn tensor(mut self, name: impl Into<String>, gradient: impl Into<Gradient<'a>>) -> Self {
        let Gradient { slice, role } = gradient.into();
        self.tensors.push(Tensor { name: name.into(), len: slice.len, format: slice.format, role });
        self.slices.push(slice);
        self
    }

    /// Cuts the work as told and not as [`Context::plan_limits`] finds best, in pieces no larger than the device takes.
    /// Changes no result.
    pub fn plan_limits(mut self, limits: PlanLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Says that the tensors may lie where those of another open set do: passes over one buffer, as in SAM. Else
    /// [`GradScaler::begin`](crate::GradScaler::begin) refuses the second.
    pub fn shares_buffers(mut self) -> Self {
        self.shares = true;
        self
    }

    /// Checks the tensors, plans the dispatches, compiles what a step with an L2 norm needs and allocates what the set needs
    /// for itself. Other kinds of steps are [prepared](GradSet::prepare).
    ///
    /// # Errors
    /// Any misuse, by the name of the tensor: [`Error::Offset`], [`Error::BeyondBuffer`], [`Error::MissingUsage`],
    /// [`Error::Overlap`], [`Error::DuplicateName`]; [`Error::ZeroLimit`], [`Error::TooManyElements`],
    /// [`Error::TooManyTiles`], [`Error::Scratch`] if it cannot be planned; [`Error::Wgpu`] if wgpu refuses a buffer;
    /// [`Error::DeviceLost`].
    pub fn build(self, context: &Context) -> Result<GradSet, Error> {
        let shared = &context.shared;
        check_names(self.tensors.iter().map(|t| t.name.as_str()))?;
        let layout = lay_out(&self.tensors, &self.slices)?;
        let device = PlanLimits::from_device(context.device());
        let mut limits = self.limits.map_or(device, |asked| within(&device, asked));
        let mut plan = Plan::new(&layout, &limits)?;
        if self.limits.is_none() && plan.tiles >= WORTH_TILES {
            limits = context.plan_limits();
            plan = Plan::new(&layout, &limits)?;
        }
        let scratch = Scratch::new(shared, &self.name, &plan, self.tensors.len())?;
        let report = new_report(context, &self.name, self.tensors.len())?;
        let buffers: Vec<wgpu::Buffer> = self.slices.iter().map(|s| s.buffer.clone()).collect();
        let gradients =
            Gradients { set: &self.name, tensors: &self.tensors, layout: &layout, buffers: &buffers };
        let compiled = Compiled::new(shared, plan, &gradients, scratch, &report)?;
        let head_group = guarded(&shared.device, "binding a verdict", || {
            group(shared, &shared.layouts.head, &[part(&report, 0, HEAD_BYTES)])
        })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(GradSet(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            open: Mutex::default(),
            head_group,
            norm_finish: shared.pipeline(Kernel::NormFinish)?,
            name: self.name,
            context: context.clone(),
            tensors: self.tensors.into(),
            shares: self.shares,
            report,
            compiled: RwLock::new(Arc::new(compiled)),
            rebinding: Mutex::default(),
            limits,
            sharding: Mutex::default(),
            recorded: AtomicU64::new(0),
        })))
    }
}

/// The buffer of the verdict, of what the set keeps, and of the per-tensor counts.
pub(crate) fn new_report(context: &Context, set: &str, tensors: usize) -> Result<wgpu::Buffer, Error> {
    let shared = &context.shared;
    let limits = shared.device.limits();
    let bytes = HEAD_BYTES + (tensors.max(1) as u64) * CENSUS_BYTES;
    let limit = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
    if bytes > limit {
        return Err(Error::Scratch { set: set.into(), what: "report", bytes, limit });
    }
    guarded(&shared.device, &format!("set \"{set}\": allocating a report"), || {
        let mut content = vec![0; bytes as usize];
        content[..VERDICT_BYTES as usize].copy_from_slice(bytemuck::bytes_of(&Verdict::not_run()));
        use wgpu::BufferUsages as Usage;
        let usage = Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST;
        filled(shared, "gradclip report", usage, &content)
    })
}

/// What was asked for, as far as the device has it.
fn within(device: &PlanLimits, asked: PlanLimits) -> PlanLimits {
    PlanLimits {
        window_bytes: asked.window_bytes.min(device.window_bytes),
        window_align: asked
            .window_align
            .max(1)
            .checked_next_multiple_of(device.window_align)
            // Leaves room for no window, which is an error with a name.
            .unwrap_or(u64::MAX),
        windows_per_dispatch: asked.windows_per_dispatch.min(device.windows_per_dispatch),
        groups_per_dimension: asked.groups_per_dimension.min(device.groups_per_dimension),
        ..asked
    }
}
