//! The gradients of one optimizer: one plan, one norm, one verdict.

pub(crate) mod params;
pub(crate) mod per_tensor;
mod probe;
pub(crate) mod shard;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clip::Clip;
use crate::gpu::bound::Gradients;
use crate::gpu::compiled::{Compiled, Scratch};
use crate::gpu::context::{group, guarded};
use crate::gpu::shader::Kernel;
use crate::grad_set::params::{STEP_BYTES, ScaleSource, StepKey};
use crate::grad_set::shard::Sharding;
use crate::plan::{Plan, PlanLimits, check_names, lay_out};
use crate::report::{Verdict, verdict_of};
use crate::slice::Tensor;
use crate::{ClipNorm, ClipValue, Context, Error, LossScale, TensorSlice};

/// All gradients of one optimizer. They share one norm, one factor and one verdict.
///
/// The buffers stay the engine's: a set keeps handles to them and writes nothing outside the slices it was given.
/// Gradients belong to one set: a second set over the same bytes would unscale them a second time, and no one would see.
#[derive(Debug)]
pub struct GradSet {
    pub(crate) name: String,
    pub(crate) context: Context,
    pub(crate) tensors: Arc<[Tensor]>,
    pub(crate) report: wgpu::Buffer,
    pub(crate) reading: Mutex<crate::gpu::readback::Reading>,
    pub(crate) compiled: Compiled,
    pub(crate) id: u64,
    /// The scaler that has a step of this set open; 0: none.
    pub(crate) open_under: AtomicU64,
    /// The verdict for `scale_update`.
    pub(crate) verdict_group: wgpu::BindGroup,
    pub(crate) sharding: Mutex<Sharding>,
    limits: PlanLimits,
    norm_finish: wgpu::ComputePipeline,
    pub(crate) steps: Mutex<VecDeque<(StepKey, wgpu::BindGroup)>>,
}

/// What a report asks for beside the step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Also {
    pub norm_after: bool,
    pub tensor_norms: bool,
}

/// Collects the tensors of a [`GradSet`].
#[derive(Debug)]
#[must_use]
pub struct GradSetBuilder<'a> {
    name: String,
    tensors: Vec<Tensor>,
    slices: Vec<TensorSlice<'a>>,
    limits: Option<PlanLimits>,
}

impl<'a> GradSetBuilder<'a> {
    /// Adds a tensor. The order is that of reports; it changes no result.
    pub fn tensor(mut self, name: impl Into<String>, slice: TensorSlice<'a>) -> Self {
        self.tensors.push(Tensor { name: name.into(), len: slice.len, format: slice.format });
        self.slices.push(slice);
        self
    }

    /// Cuts the work as told and not as [`Context::plan_limits`] finds best, in pieces no larger than the device takes.
    /// Changes no result.
    pub fn plan_limits(mut self, limits: PlanLimits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Checks the tensors, plans the dispatches, compiles what is missing and allocates what the set needs for itself.
    ///
    /// # Errors
    /// Any misuse, by the name of the tensor: [`Error::Offset`], [`Error::BeyondBuffer`], [`Error::MissingUsage`],
    /// [`Error::Overlap`], [`Error::DuplicateName`]; [`Error::ZeroLimit`], [`Error::TooManyElements`],
    /// [`Error::TooManyTiles`], [`Error::Scratch`] if it cannot be planned; [`Error::Wgpu`] if wgpu refuses a buffer.
    pub fn build(self, context: &Context) -> Result<GradSet, Error> {
        let shared = &context.shared;
        check_names(self.tensors.iter().map(|t| t.name.as_str()))?;
        let layout = lay_out(&self.tensors, &self.slices)?;
        let device = PlanLimits::from_device(context.device());
        let mut limits = self.limits.map_or(device, |asked| within(&device, asked));
        let mut plan = Plan::new(&layout, &limits)?;
        if self.limits.is_none() && plan.tiles >= probe::WORTH_TILES {
            limits = context.plan_limits();
            plan = Plan::new(&layout, &limits)?;
        }
        let scratch = Scratch::new(shared, &self.name, &plan, self.tensors.len())?;
        let report = scratch.new_report(shared)?;
        let buffers: Vec<wgpu::Buffer> = self.slices.iter().map(|s| s.buffer.clone()).collect();
        let gradients =
            Gradients { set: &self.name, tensors: &self.tensors, layout: &layout, buffers: &buffers };
        let compiled = Compiled::new(shared, plan, gradients, scratch, &report)?;
        let verdict_group = guarded(&shared.device, "binding a verdict", || {
            let verdict = wgpu::BindingResource::Buffer(verdict_of(&report));
            group(shared, &shared.layouts.verdict, &[verdict])
        })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(GradSet {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            open_under: AtomicU64::new(0),
            verdict_group,
            norm_finish: shared.pipeline(Kernel::NormFinish)?,
            name: self.name,
            context: context.clone(),
            tensors: self.tensors.into(),
            report,
            reading: Mutex::default(),
            compiled,
            limits,
            sharding: Mutex::default(),
            steps: Mutex::default(),
        })
    }
}

impl GradSet {
    /// Starts a set. The name is that of its optimizer and appears in errors.
    pub fn builder<'a>(name: impl Into<String>) -> GradSetBuilder<'a> {
        GradSetBuilder { name: name.into(), tensors: Vec::new(), slices: Vec::new(), limits: None }
    }

    /// The name of the set.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Elements in all tensors.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.tensors.iter().map(|t| t.len).sum()
    }

    /// Bytes of GPU memory that the set holds beside the gradients: tables, partials, report. What a driver adds to each
    /// buffer is not in it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        self.report.size() + self.compiled.memory_bytes() + steps * STEP_BYTES
    }

    /// The plan, for those who want to see how the work is cut.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.compiled.plan
    }

    /// The verdict of the latest step as a storage binding for the engine's own kernels, laid out as `struct Verdict` in
    /// [`VERDICT_WGSL`](crate::VERDICT_WGSL). Before any step ran it says `skip`. The buffer stays the same for the life of
    /// the set.
    #[must_use]
    pub fn verdict(&self) -> wgpu::BufferBinding<'_> {
        verdict_of(&self.report)
    }

    /// Records one step: divide by `scale`, look for NaN and infinity, measure one L2 norm over all tensors, scale them
    /// in place so that it is at most `clip`. Without `clip` it only unscales; with [`LossScale::ONE`] it only clips.
    ///
    /// One compute pass on `encoder`; nothing is read back, waited for or submitted. The step takes the gradients as they
    /// are when the GPU gets there, so record it after everything that writes them. If `scale`, `max_norm` and `eps` are
    /// those of a recent step nothing is allocated either; else one buffer of 512 bytes.
    ///
    /// # Errors
    /// [`Error::StepOpen`] while a step of the set is open under a [`GradScaler`](crate::GradScaler); [`Error::Wgpu`] if
    /// wgpu refuses that buffer. Nothing is recorded then. An encoder of another device is an error of wgpu's when it is
    /// finished.
    pub fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: LossScale,
        clip: Option<ClipNorm>,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        self.record_step(encoder, ScaleSource::Value(scale), Clip::Norm(clip), None, true, Also::default())
    }

    /// [`GradSet::record`] without the write: the verdict is decided, and the gradients stay as they are. For a kernel
    /// that binds [`GradSet::verdict`], multiplies by the factor itself ([`SCALED_WGSL`](crate::SCALED_WGSL) does it, also
    /// where f32 cannot hold the factor) and does nothing if `skip` is set.
    ///
    /// # Errors
    /// As [`GradSet::record`].
    pub fn record_deferred(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: LossScale,
        clip: Option<ClipNorm>,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        self.record_step(encoder, ScaleSource::Value(scale), Clip::Norm(clip), None, false, Also::default())
    }

    /// [`GradSet::record`] with a limit for each tensor by itself: one coefficient a tensor, from the norm of that tensor.
    /// That changes the direction of the update, and is neither PyTorch's `clip_grad_norm_` nor Megatron's clipping but
    /// Keras' `clipnorm` and what Burn's optimizers do; [`GradSet::record`] is what most papers mean.
    ///
    /// What is not finite, or would overflow, in one tensor skips the step for all. The report's norm is that of all
    /// tensors, its coefficient the smallest of any, its factor `1 / scale`; [`GradSet::read_tensor_clips`] has the norms
    /// and coefficients of all. The first such step compiles its kernels.
    ///
    /// # Errors
    /// As [`GradSet::record`].
    pub fn record_clip_per_tensor(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: LossScale,
        clip: ClipNorm,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        let scale = ScaleSource::Value(scale);
        self.record_step(encoder, scale, Clip::EachTensor(clip), None, true, Also::default())
    }

    /// Records one step that divides by `scale`, looks for NaN and infinity, and limits each element to
    /// `-clip..=clip` in place. The L2 norm before is measured for the report; its coefficient is 1 and its factor
    /// `1 / scale`. The first such step compiles its kernels.
    ///
    /// What is NaN or infinite skips the step, as in [`GradSet::record`]. A finite element that is too large for its format
    /// when divided by the scale is limited like any other.
    ///
    /// # Errors
    /// As [`GradSet::record`].
    pub fn record_clip_value(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: LossScale,
        clip: ClipValue,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        let scale = ScaleSource::Value(scale);
        self.record_step(encoder, scale, Clip::Value(clip), None, true, Also::default())
    }

    /// A step outside the open one would divide the scale out a second time.
    pub(crate) fn refuse_open(&self) -> Result<(), Error> {
        match self.open_under.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Error::StepOpen { set: self.name.clone() }),
        }
    }

    /// A limit that is not one norm of all tensors is always applied in place.
    pub(crate) fn record_step(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: ScaleSource<'_>,
        clip: Clip,
        skip_above: Option<f32>,
        apply: bool,
        also: Also,
    ) -> Result<(), Error> {
        let shared = &self.context.shared;
        let step = self.step_group(scale, clip, skip_above)?;
        let partials = self.compiled.partials(shared, clip.norm_type())?;
        let each = match clip {
            Clip::Norm(_) => None,
            Clip::EachTensor(_) | Clip::Value(_) => Some(self.compiled.each_tensor(shared, &self.report)?),
        };
        let tensor_norms = also.tensor_norms && each.is_none();
        let tensor_norms =
            tensor_norms.then(|| self.compiled.tensor_norms(shared, &self.report)).transpose()?;
        let after = also.norm_after.then(|| self.compiled.after(shared)).transpose()?;
        // Measured as if unscaled already: which the gradients then are.
        let measure = ClipNorm::unlimited(clip.norm_type());
        let measure = |after| {
            let scale = ScaleSource::Value(LossScale::ONE);
            Ok((after, self.step_group(scale, Clip::Norm(Some(measure)), None)?))
        };
        let after = after.map(measure).transpose()?;

        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("gradclip"),
            timestamp_writes: None,
        });
        self.compiled.record_norm_partials(&mut pass, partials);
        pass.set_pipeline(&self.norm_finish);
        pass.set_bind_group(0, &self.compiled.norm_finish, &[]);
        pass.set_bind_group(1, &step, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        if let Some(norms) = tensor_norms {
            norms.record(&mut pass, &step);
        }
        if let Some(each) = each {
            each.record(&self.compiled, &mut pass, &step);
        } else if apply {
            self.compiled.record_apply(&mut pass);
        }
        if let Some((after, step)) = after {
            self.compiled.record_norm_partials(&mut pass, partials);
            after.record(&mut pass, &step);
        }
        drop(pass);
        self.forget_ledger();
        self.count_recorded();
        Ok(())
    }

    /// A step that a report can be of.
    pub(crate) fn count_recorded(&self) {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).recorded += 1;
    }

    /// Points the set at other buffers of the same shapes. If they share buffers at the same offsets as before, the plan
    /// and everything but the bind groups is kept; else the set is planned anew. Steps recorded before keep the old
    /// buffers. The verdict's buffer stays.
    ///
    /// # Errors
    /// [`Error::TensorCount`] or [`Error::Shape`] if it is not the same list of tensors, else as
    /// [`GradSetBuilder::build`]; the set then stays as it was.
    pub fn rebind(&mut self, slices: &[TensorSlice<'_>]) -> Result<(), Error> {
        if slices.len() != self.tensors.len() {
            return Err(Error::TensorCount {
                set: self.name.clone(),
                expected: self.tensors.len(),
                given: slices.len(),
            });
        }
        for (tensor, slice) in self.tensors.iter().zip(slices) {
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
        let shared = &self.context.shared;
        let layout = lay_out(&self.tensors, slices)?;
        let buffers: Vec<wgpu::Buffer> = slices.iter().map(|s| s.buffer.clone()).collect();
        let gradients =
            Gradients { set: &self.name, tensors: &self.tensors, layout: &layout, buffers: &buffers };
        if layout == self.compiled.layout {
            self.compiled.rebind(shared, &gradients)?;
            self.forget_ledger();
            return Ok(());
        }
        let plan = Plan::new(&layout, &self.limits)?;
        let scratch = Scratch::new(shared, &self.name, &plan, self.tensors.len())?;
        self.compiled = Compiled::new(shared, plan, gradients, scratch, &self.report)?;
        self.forget_ledger();
        Ok(())
    }
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

/// The verdict as the report buffer holds it before any step.
pub(crate) fn not_run() -> [u8; size_of::<Verdict>()] {
    bytemuck::cast(Verdict::not_run())
}
