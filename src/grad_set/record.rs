//! Recording steps. What a step needs is looked up first, so that an error leaves the encoder as it was.

use std::sync::Arc;

use super::compiled::{Compiled, Extra, Finish, Lost};
use super::params::{StepUniform, Told, Words};
use super::per_tensor::EachTensor;
use super::{GradSet, Prepare};
use crate::gpu::context::Tools;
use crate::gpu::ring::{Bound, Slot};
use crate::limit::Rule;
use crate::{Error, Limit, NormType, Unscale};

/// What a report asks for beside the step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Also {
    pub norm_after: bool,
    pub tensor_norms: bool,
    /// Counts of what a step in place makes 0.
    pub lost: bool,
}

/// A step that has all it needs.
pub(crate) struct Ready<'a> {
    set: &'a GradSet,
    compiled: Arc<Compiled>,
    words: Words<'a>,
    scaler: &'a wgpu::BindGroup,
    step: (Slot, Bound),
    /// The second limit.
    then: Option<(Slot, Bound, NormType)>,
    /// A norm of what is left.
    after: Option<(Slot, Bound)>,
    norm_type: NormType,
    in_place: bool,
    each: bool,
    tensor_norms: bool,
    lost: bool,
}

impl<'a> Ready<'a> {
    pub fn new(set: &'a GradSet, told: Told<'a>, also: Also) -> Result<Self, Error> {
        told.check()?;
        Self::with(set, told, also, told.uniform())
    }

    /// A step whose numbers are not only those that it was told.
    pub fn with(set: &'a GradSet, told: Told<'a>, also: Also, uniform: StepUniform) -> Result<Self, Error> {
        let shared = &set.0.context.shared;
        let tools = shared.tools()?;
        let compiled = set.compiled();
        let need = |kind: Prepare| {
            if compiled.prepared(kind) { Ok(()) } else { Err(kind.missing(set)) }
        };
        let norm_type = told.limit.norm_type;
        let then = told.limit.then;
        if norm_type == NormType::L1 || then.is_some_and(|clip| clip.norm_type() == NormType::L1) {
            need(Prepare::L1)?;
        }
        let each = matches!(told.limit.rule, Rule::EachTensor(_) | Rule::Value(_));
        let (lost, norm_after) = (also.lost && told.in_place, also.norm_after && told.in_place);
        for (asked, kind) in [
            (each, Prepare::EachTensor),
            (also.tensor_norms, Prepare::TensorNorms),
            (lost, Prepare::Lost),
            (norm_after, Prepare::NormAfter),
        ] {
            if asked {
                need(kind)?;
            }
        }
        if each && lost {
            compiled.check_each_counted(shared)?;
        }
        let put = |uniform: StepUniform| tools.ring.put(shared, bytemuck::bytes_of(&uniform));
        let then = then.map(|clip| {
            let (slot, bound) = put(StepUniform::continued(clip))?;
            Ok((slot, bound, clip.norm_type()))
        });
        let last_norm = told.limit.then.map_or(norm_type, crate::ClipNorm::norm_type);
        Ok(Self {
            set,
            words: told.words(),
            scaler: told.scaler.unwrap_or(&tools.no_scaler),
            step: put(uniform)?,
            then: then.transpose()?,
            after: norm_after.then(|| put(StepUniform::measuring(last_norm))).transpose()?,
            norm_type,
            in_place: told.in_place,
            each,
            tensor_norms: also.tensor_norms || each,
            lost,
            compiled,
        })
    }

    fn tools(&self) -> Result<&'a Tools, Error> {
        self.set.0.context.shared.tools()
    }

    /// The words of the step, to where the step finds them.
    pub fn record_words(&self, pass: &mut wgpu::ComputePass<'_>) {
        let Ok(tools) = self.tools() else { return };
        for (number, word) in (1..).zip(self.words) {
            if let Some(word) = word {
                pass.set_pipeline(&tools.gather);
                pass.set_bind_group(0, &word.group, &[]);
                pass.set_bind_group(1, &self.set.0.head_group, &[]);
                pass.dispatch_workgroups(number, 1, 1);
            }
        }
    }

    /// Read, and leave partials.
    pub fn record_partials(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.partials(pass, self.norm_type);
    }

    fn partials(&self, pass: &mut wgpu::ComputePass<'_>, norm_type: NormType) {
        let extras = &self.compiled.planned.extras;
        // The partials of an L2 norm hold the largest magnitude too.
        let special = extras.l1_partials.get().filter(|_| norm_type == NormType::L1);
        self.compiled.record_norm_partials(pass, special.map(Vec::as_slice));
    }

    /// A kernel that decides, with a group of its own.
    pub fn record_decision(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        pipeline: &wgpu::ComputePipeline,
        group: &wgpu::BindGroup,
    ) {
        self.finish(pass, pipeline, group, &self.step.1);
    }

    /// A kernel that reads the numbers of the step.
    pub fn record_extra(&self, pass: &mut wgpu::ComputePass<'_>, extra: &Extra) {
        extra.record(pass, &self.step.1, self.scaler);
    }

    fn finish(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        pipeline: &wgpu::ComputePipeline,
        group: &wgpu::BindGroup,
        step: &Bound,
    ) {
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, group, &[]);
        step.set(pass);
        pass.set_bind_group(2, self.scaler, &[]);
        pass.dispatch_workgroups(1, 1, 1);
    }

    /// Everything up to the decision.
    pub fn record_reads(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.record_words(pass);
        self.record_partials(pass);
        self.record_decision(pass, &self.set.0.norm_finish, &self.compiled.planned.norm_finish);
        self.record_tensors(pass);
    }

    /// What is decided for tensors by themselves.
    pub fn record_tensors(&self, pass: &mut wgpu::ComputePass<'_>) {
        let extras = &self.compiled.planned.extras;
        if let Some(norms) = extras.tensor_norms.get().filter(|_| self.tensor_norms) {
            self.record_extra(pass, &norms.norms);
        }
        if let Some(each) = self.each() {
            each.record_factors(pass, &self.step.1, self.scaler);
        }
    }

    fn each(&self) -> Option<&EachTensor> {
        self.compiled.planned.extras.each_tensor.get().filter(|_| self.each)
    }

    /// What was decided, in place.
    pub fn record_writes(&self, pass: &mut wgpu::ComputePass<'_>) {
        if !self.in_place {
            return;
        }
        let extras = &self.compiled.planned.extras;
        let lost = extras.lost.get().filter(|_| self.lost);
        if let Some(lost) = lost {
            lost.record_clear(pass);
        }
        match (self.each(), lost) {
            (Some(_), Some(_)) => {
                if let Some(both) = extras.each_counted.get() {
                    self.compiled.record_write(pass, &both.apply, both.pipelines.iter());
                }
            }
            (Some(each), None) => each.record_apply(&self.compiled, pass),
            (None, Some(lost)) => self.compiled.record_write(pass, &lost.apply, lost.pipelines.iter()),
            (None, None) => self.compiled.record_apply(pass),
        }
        if let Some((_, bound, norm_type)) = &self.then {
            self.partials(pass, *norm_type);
            self.finish(pass, &self.set.0.norm_finish, &self.compiled.planned.norm_finish, bound);
            self.compiled.record_apply(pass);
        }
        if let (Some((_, bound)), Some(Finish { group, .. })) = (&self.after, extras.norm_after.get()) {
            let norm_type = self.then.as_ref().map_or(self.norm_type, |(_, _, norm_type)| *norm_type);
            self.partials(pass, norm_type);
            // Measured as if by no scaler: the gradients are unscaled by now.
            if let Ok(tools) = self.tools() {
                pass.set_pipeline(&self.set.0.norm_finish);
                pass.set_bind_group(0, group, &[]);
                bound.set(pass);
                pass.set_bind_group(2, &tools.no_scaler, &[]);
                pass.dispatch_workgroups(1, 1, 1);
            }
        }
    }

    /// The numbers stay until the GPU is done with them.
    pub fn done(self, pass: &wgpu::ComputePass<'_>) {
        self.step.0.release_after(pass);
        if let Some((slot, ..)) = self.then {
            slot.release_after(pass);
        }
        if let Some((slot, _)) = self.after {
            slot.release_after(pass);
        }
        self.set.forget_ledger();
        self.set.count_recorded();
    }

    /// As `done`, of a measurement or of half a step.
    pub fn release(self, pass: &wgpu::ComputePass<'_>) {
        self.step.0.release_after(pass);
    }
}

impl Lost {
    fn record_clear(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_pipeline(&self.clear_pipeline);
        pass.set_bind_group(0, &self.clear, &[]);
        pass.dispatch_workgroups(1, 1, 1);
    }
}

/// A compute pass of the crate's own.
pub(crate) fn begin_pass<'a>(encoder: &'a mut wgpu::CommandEncoder, label: &str) -> wgpu::ComputePass<'a> {
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some(label), timestamp_writes: None })
}

impl GradSet {
    /// Records one step: divide by `scale`, look for NaN and infinity, measure one norm over all tensors, change them in
    /// place as `limit` says. `None` or [`Limit::none`] only unscales; a scale of 1 only clips.
    ///
    /// One compute pass on `encoder`; nothing is read back, waited for, compiled, allocated or submitted. The step takes the
    /// gradients as they are when the GPU gets there, so record it after everything that writes them, and while no pass is
    /// open on the encoder: wgpu shows one to no one, and refuses the encoder when it is finished.
    /// [`GradSet::record_in`] records into an open pass. An encoder of another device is an error of wgpu's as well.
    ///
    /// f16 gradients that unscale to 2^-25 or less become 0 in place, which loses what the loss scale had saved:
    /// [`GradSet::record_deferred`] keeps them.
    ///
    /// # Errors
    /// [`Error::StepOpen`] while a step of the set is open under a [`GradScaler`](crate::GradScaler);
    /// [`Error::LossScale`], [`Error::Divisor`], [`Error::MaxNorm`] and the like for a number outside its domain;
    /// [`Error::NotPrepared`] for a kind of limit that was not prepared; [`Error::Wgpu`] if there is no memory for the
    /// numbers of more than 256 steps on their way. Nothing is recorded then.
    pub fn record<K>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit<K>>,
    ) -> Result<(), Error> {
        let (unscale, limit) = (scale.into(), limit.into().any());
        let step = self.ready_free(&unscale, &limit, true)?;
        record_one(&mut begin_pass(encoder, "gradclip"), step);
        Ok(())
    }

    /// [`GradSet::record`] without the write: the verdict is decided, and the gradients stay as they are. For a kernel
    /// that binds [`GradSet::verdict`], multiplies by the factor itself ([`scaled_wgsl`](crate::scaled_wgsl) does it, also
    /// where f32 cannot hold the factor) and does nothing if `skip` is set. A step then reads every gradient once and
    /// writes none, loses nothing of f16, and does not skip for an overflow of a format that nobody writes.
    ///
    /// # Errors
    /// As [`GradSet::record`].
    pub fn record_deferred(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit>,
    ) -> Result<(), Error> {
        let (unscale, limit) = (scale.into(), limit.into().any());
        let step = self.ready_free(&unscale, &limit, false)?;
        record_one(&mut begin_pass(encoder, "gradclip"), step);
        Ok(())
    }

    /// [`GradSet::record`] inside a compute pass that the engine opened: with its timestamps, or between its own kernels.
    /// The pass is left with other pipelines and bind groups set.
    ///
    /// # Errors
    /// As [`GradSet::record`].
    pub fn record_in<K>(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit<K>>,
    ) -> Result<(), Error> {
        let (unscale, limit) = (scale.into(), limit.into().any());
        record_one(pass, self.ready_free(&unscale, &limit, true)?);
        Ok(())
    }

    /// [`GradSet::record_deferred`] inside a compute pass that the engine opened.
    ///
    /// # Errors
    /// As [`GradSet::record`].
    pub fn record_deferred_in(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit>,
    ) -> Result<(), Error> {
        let (unscale, limit) = (scale.into(), limit.into().any());
        record_one(pass, self.ready_free(&unscale, &limit, false)?);
        Ok(())
    }

    /// A step under no scaler.
    fn ready_free<'a>(
        &'a self,
        unscale: &'a Unscale,
        limit: &'a crate::limit::AnyLimit,
        in_place: bool,
    ) -> Result<Ready<'a>, Error> {
        self.refuse_open()?;
        Ready::new(self, Told { unscale, limit, scaler: None, in_place }, Also::default())
    }
}

/// Records a step that nothing else has a say in.
pub(crate) fn record_one(pass: &mut wgpu::ComputePass<'_>, step: Ready<'_>) {
    step.record_reads(pass);
    step.record_writes(pass);
    step.done(pass);
}
