//! One step of one optimizer as types, so that the wrong order does not compile.
//!
//! [`Accumulating`] -> [`Unscaled`] -> [`Clipped`] -> [`Recorded`]. Each takes the one before by value: there is no
//! way to clip before unscaling, to unscale or clip twice, to add a microbatch after unscaling, or to record twice.

use std::future::Future;

use crate::clip::Clip;
use crate::grad_set::Also;
use crate::grad_set::params::ScaleSource;
use crate::{ClipNorm, ClipValue, Error, GradScaler, GradSet, Ledger};

/// Marks a set as open until it is dropped.
#[derive(Debug)]
struct Open<'a> {
    scaler: &'a GradScaler,
    set: &'a GradSet,
    microbatches: u32,
    also: Also,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.scaler.close(self.set);
    }
}

/// An open step whose gradients are still being added up: run backward of every microbatch now, with the loss
/// multiplied by [`GradScaler::scale_buffer`].
#[derive(Debug)]
#[must_use = "dropping an open step gives it up; call unscale() after the last microbatch"]
pub struct Accumulating<'a>(Open<'a>);

/// An open step whose gradients are complete. The division by the scale is part of what [`Unscaled::record`] or
/// [`Clipped::record`] records.
#[derive(Debug)]
#[must_use = "dropping an open step gives it up; clip it or record it"]
pub struct Unscaled<'a>(Open<'a>);

/// An open step that will be clipped.
#[derive(Debug)]
#[must_use = "dropping an open step gives it up; record it"]
pub struct Clipped<'a> {
    open: Open<'a>,
    clip: ClipNorm,
}

/// An open step whose limit is not one norm of all tensors, so that no single factor can stand for it: it is always applied
/// in place.
#[derive(Debug)]
#[must_use = "dropping an open step gives it up; record it"]
pub struct ClippedInPlace<'a> {
    open: Open<'a>,
    clip: Clip,
}

/// An open step over a part of the gradients whose first half is on an encoder: submit it, read the ledger, add up the
/// ledgers of all parts, and record the rest.
#[derive(Debug)]
#[must_use = "dropping an open step gives it up; read its ledger, merge, and record it"]
pub struct Sharded<'a>(Open<'a>);

/// A step whose commands are on an encoder. Give it to [`GradScaler::update`].
#[derive(Debug)]
#[must_use = "dropping a recorded step keeps it out of the update of the scale; pass it to GradScaler::update"]
pub struct Recorded<'a>(Open<'a>);

impl<'a> Accumulating<'a> {
    pub(crate) fn new(scaler: &'a GradScaler, set: &'a GradSet) -> Self {
        Self(Open { scaler, set, microbatches: 0, also: Also::default() })
    }

    /// Counts a microbatch whose gradients were added to the set's, for the report.
    pub fn microbatch(&mut self) -> &mut Self {
        self.0.microbatches = self.0.microbatches.saturating_add(1);
        self
    }

    /// Ends accumulation.
    pub fn unscale(self) -> Unscaled<'a> {
        Unscaled(self.0)
    }
}

impl<'a> Unscaled<'a> {
    /// Limits the global norm of the set.
    pub fn clip_grad_norm(self, clip: ClipNorm) -> Clipped<'a> {
        Clipped { open: self.0, clip }
    }

    /// Limits the norm of each tensor by itself, as [`GradSet::record_clip_per_tensor`]. In the counts of the scaler's
    /// reports a step is clipped if a tensor was.
    pub fn clip_grad_norm_per_tensor(self, clip: ClipNorm) -> ClippedInPlace<'a> {
        ClippedInPlace { open: self.0, clip: Clip::EachTensor(clip) }
    }

    /// Limits the magnitude of each element, as [`GradSet::record_clip_value`]. In the counts of the scaler's reports no
    /// such step is clipped.
    pub fn clip_grad_value(self, clip: ClipValue) -> ClippedInPlace<'a> {
        ClippedInPlace { open: self.0, clip: Clip::Value(clip) }
    }

    /// [`Clipped::record_ledger`] without a limit.
    ///
    /// # Errors
    /// As [`Clipped::record_ledger`].
    pub fn record_ledger(self, encoder: &mut wgpu::CommandEncoder) -> Result<Sharded<'a>, Error> {
        record_ledger(self.0, encoder, None)
    }

    /// Asks for the norm after the step, measured by a second read pass, in the report. A deferred step has none.
    pub fn measure_norm_after(mut self) -> Self {
        self.0.also.norm_after = true;
        self
    }

    /// Asks for the norm of each tensor in the report.
    pub fn measure_tensor_norms(mut self) -> Self {
        self.0.also.tensor_norms = true;
        self
    }

    /// Records the step without a limit.
    ///
    /// # Errors
    /// [`Error::Wgpu`] if wgpu refuses a buffer; nothing is recorded then.
    pub fn record(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.0, encoder, Clip::Norm(None), true)
    }

    /// [`Clipped::record_deferred`] without a limit.
    ///
    /// # Errors
    /// As [`Unscaled::record`].
    pub fn record_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.0, encoder, Clip::Norm(None), false)
    }
}

impl<'a> Clipped<'a> {
    /// Records the step: read, decide, scale in place.
    ///
    /// # Errors
    /// [`Error::Wgpu`] if wgpu refuses a buffer; nothing is recorded then.
    pub fn record(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.open, encoder, Clip::Norm(Some(self.clip)), true)
    }

    /// Records the read pass and the verdict only. The gradients stay as they are: the optimizer's kernel binds
    /// [`GradSet::verdict`], multiplies by the factor ([`SCALED_WGSL`](crate::SCALED_WGSL) does it, also where f32 cannot
    /// hold the factor) and does nothing if `skip` is set. A step then reads every gradient once and writes none.
    ///
    /// # Errors
    /// As [`Clipped::record`].
    pub fn record_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.open, encoder, Clip::Norm(Some(self.clip)), false)
    }
}

impl<'a> Clipped<'a> {
    /// Records the first half of a step over gradients of which this set holds a part, as [`GradSet::record_ledger`]:
    /// the scalers of all parts keep one scale, since they see one verdict. What
    /// [`Unscaled::measure_norm_after`] and [`Unscaled::measure_tensor_norms`] asked for is not measured: a part does not
    /// know it.
    ///
    /// # Errors
    /// [`Error::ShardLimit`] as [`GradSet::record_ledger`]; [`Error::Wgpu`] if wgpu refuses a buffer. Nothing is recorded
    /// then.
    pub fn record_ledger(self, encoder: &mut wgpu::CommandEncoder) -> Result<Sharded<'a>, Error> {
        record_ledger(self.open, encoder, Some(self.clip))
    }
}

impl<'a> ClippedInPlace<'a> {
    /// Records the step: read, decide, change in place.
    ///
    /// # Errors
    /// As [`Clipped::record`].
    pub fn record(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.open, encoder, self.clip, true)
    }
}

impl<'a> Sharded<'a> {
    /// The ledger of this part. Blocks until the GPU is done with everything submitted so far, at most a minute.
    ///
    /// # Errors
    /// As [`GradSet::read_ledger`].
    pub fn read_ledger(&self) -> Result<Ledger, Error> {
        self.0.set.read_ledger()
    }

    /// [`Sharded::read_ledger`] without blocking, as [`GradSet::read_ledger_async`].
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_ledger`] but for the timeout.
    pub fn read_ledger_async(&self) -> impl Future<Output = Result<Ledger, Error>> + use<'a> {
        self.0.set.read_ledger_async()
    }

    /// Records the second half, from the ledger of all parts, as [`GradSet::record_merged`].
    ///
    /// # Errors
    /// [`Error::NoLedger`], [`Error::Ledger`] and [`Error::Wgpu`] as [`GradSet::record_merged`]. Nothing is recorded then,
    /// and the step is given up.
    pub fn record(self, encoder: &mut wgpu::CommandEncoder, merged: &Ledger) -> Result<Recorded<'a>, Error> {
        self.0.set.record_second_half(encoder, merged, true)?;
        Ok(Recorded(self.0))
    }

    /// [`Sharded::record`] without the write, as [`Clipped::record_deferred`].
    ///
    /// # Errors
    /// As [`Sharded::record`].
    pub fn record_deferred(
        self,
        encoder: &mut wgpu::CommandEncoder,
        merged: &Ledger,
    ) -> Result<Recorded<'a>, Error> {
        self.0.set.record_second_half(encoder, merged, false)?;
        Ok(Recorded(self.0))
    }
}

impl<'a> Recorded<'a> {
    pub(crate) fn scaler(&self) -> &'a GradScaler {
        self.0.scaler
    }

    pub(crate) fn set(&self) -> &'a GradSet {
        self.0.set
    }

    pub(crate) fn microbatches(&self) -> u32 {
        self.0.microbatches
    }

    pub(crate) fn also(&self) -> Also {
        self.0.also
    }
}

fn record_ledger<'a>(
    mut open: Open<'a>,
    encoder: &mut wgpu::CommandEncoder,
    clip: Option<ClipNorm>,
) -> Result<Sharded<'a>, Error> {
    open.also = Also::default();
    let skip_above = open.scaler.config.skip_above;
    open.set.record_first_half(encoder, ScaleSource::Scaler(open.scaler), clip, skip_above)?;
    Ok(Sharded(open))
}

fn record<'a>(
    mut open: Open<'a>,
    encoder: &mut wgpu::CommandEncoder,
    clip: Clip,
    apply: bool,
) -> Result<Recorded<'a>, Error> {
    open.also.norm_after &= apply;
    let skip_above = open.scaler.config.skip_above;
    let scale = ScaleSource::Scaler(open.scaler);
    open.set.record_step(encoder, scale, clip, skip_above, apply, open.also)?;
    Ok(Recorded(open))
}
