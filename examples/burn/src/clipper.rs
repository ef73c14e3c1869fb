//! One norm for all gradients of a module, before the optimizer takes them.

use burn::module::Module;
use burn::optim::GradientsParams;
use gradclip::{ClipNorm, Context, Error, GradSet, LossScale, Report, TensorSlice};

use crate::{GradSlices, GradSlicesError, grad_slices};

/// Why a step could not be clipped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClipError {
    /// The gradients cannot be taken where they lie.
    #[error(transparent)]
    Slices(#[from] GradSlicesError),
    /// gradclip refused them, or could not read a report.
    #[error(transparent)]
    Clip(#[from] Error),
    /// A report was asked for before any step.
    #[error("no step was clipped yet")]
    NoStep,
}

/// Clips the gradients of one optimizer, step after step.
pub struct Clipper {
    context: Context,
    set: Option<GradSet>,
    names: Vec<String>,
    copied: Vec<String>,
}

impl Clipper {
    /// `context` is of the device and queue that Burn was set up with. [`Clipper::clip`] refuses gradients of another
    /// device; with one of another `wgpu::Instance` wgpu itself panics.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone(), set: None, names: Vec::new(), copied: Vec::new() }
    }

    /// Divides `scale` out of the gradients of `model`, and scales them so that their common norm is at most `limit`.
    /// Submits, and waits for nothing. Where a gradient is not finite none changes; see [`Clipper::report`].
    ///
    /// Burn's gradients have other places in every step, so the set is bound anew; it is built anew only when another
    /// list of parameters has gradients.
    ///
    /// # Errors
    /// [`ClipError`]. The gradients are then as they were.
    pub fn clip<M: Module>(
        &mut self,
        model: &M,
        grads: &mut GradientsParams,
        scale: LossScale,
        limit: ClipNorm,
    ) -> Result<(), ClipError> {
        let slices = grad_slices(model, grads)?;
        self.copied = slices.copied().to_vec();
        let context = self.context.clone();
        let (device, queue) = (context.device(), context.queue());
        let set = self.bind(&slices)?;
        let mut encoder = device.create_command_encoder(&Default::default());
        set.record(&mut encoder, scale, Some(limit))?;
        queue.submit([encoder.finish()]);
        Ok(())
    }

    fn bind(&mut self, slices: &GradSlices<'_>) -> Result<&GradSet, Error> {
        let places: Vec<TensorSlice<'_>> = slices.iter().map(|(_, place)| place).collect();
        let same = slices.iter().map(|(name, _)| name).eq(self.names.iter().map(String::as_str));
        let set = match self.set.take().filter(|_| same) {
            Some(set) => match set.rebind(&places) {
                Ok(()) => Some(set),
                // A parameter that was replaced by one of another shape or type.
                Err(Error::Shape { .. }) => None,
                Err(error) => {
                    self.set = Some(set);
                    return Err(error);
                }
            },
            None => None,
        };
        let set = match set {
            Some(set) => set,
            None => {
                self.names = slices.iter().map(|(name, _)| name.to_owned()).collect();
                let builder = slices
                    .iter()
                    .fold(GradSet::builder("burn"), |builder, (name, place)| builder.tensor(name, place));
                builder.build(&self.context)?
            }
        };
        Ok(self.set.insert(set))
    }

    /// What the last step found. Waits for the GPU: right after [`Clipper::clip`] for that step, which is what an
    /// optimizer needs that must not step on NaN.
    ///
    /// # Errors
    /// [`ClipError::NoStep`], or [`ClipError::Clip`] as [`GradSet::read_report`].
    pub fn report(&self) -> Result<Report, ClipError> {
        Ok(self.set.as_ref().ok_or(ClipError::NoStep)?.read_report()?)
    }

    /// The set, for [`GradSet::read_report_async`] and all else that it offers.
    #[must_use]
    pub fn set(&self) -> Option<&GradSet> {
        self.set.as_ref()
    }

    /// The parameters whose gradient shared memory in the last step: see [`grad_slices`].
    #[must_use]
    pub fn copied(&self) -> &[String] {
        &self.copied
    }
}
