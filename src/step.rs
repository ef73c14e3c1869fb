//! One step of one optimizer as types, so that the wrong order does not compile.
//!
//! [`Accumulating`] -> [`Unscaled`] -> [`Clipped`] -> [`Recorded`]. Each takes the one before by value: there is no
//! way to clip before unscaling, to unscale or clip twice, to add a microbatch after unscaling, or to record twice.

use crate::grad_set::{Also, ScaleSource};
use crate::{ClipNorm, Error, GradScaler, GradSet};

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
        record(self.0, encoder, None, true)
    }

    /// [`Clipped::record_deferred`] without a limit.
    ///
    /// # Errors
    /// As [`Unscaled::record`].
    pub fn record_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.0, encoder, None, false)
    }
}

impl<'a> Clipped<'a> {
    /// Records the step: read, decide, scale in place.
    ///
    /// # Errors
    /// [`Error::Wgpu`] if wgpu refuses a buffer; nothing is recorded then.
    pub fn record(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.open, encoder, Some(self.clip), true)
    }

    /// Records the read pass and the verdict only. The gradients stay as they are: the optimizer's kernel binds
    /// [`GradSet::verdict`], multiplies by the factor ([`SCALED_WGSL`](crate::SCALED_WGSL) does it, also where f32 cannot
    /// hold the factor) and does nothing if `skip` is set. A step then reads every gradient once and writes none.
    ///
    /// # Errors
    /// As [`Clipped::record`].
    pub fn record_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded<'a>, Error> {
        record(self.open, encoder, Some(self.clip), false)
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

fn record<'a>(
    mut open: Open<'a>,
    encoder: &mut wgpu::CommandEncoder,
    clip: Option<ClipNorm>,
    apply: bool,
) -> Result<Recorded<'a>, Error> {
    open.also.norm_after &= apply;
    let skip_above = open.scaler.config.skip_above;
    let scale = ScaleSource::Scaler(open.scaler);
    open.set.record_step(encoder, scale, clip, skip_above, apply, open.also)?;
    Ok(Recorded(open))
}
