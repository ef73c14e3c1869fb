//! Measuring gradients, which decides nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::compiled::{Finish, Planned, finish_group};
use super::params::Told;
use super::per_tensor::{GpuTensorClip, TensorNorms};
use super::record::{Also, Ready, begin_pass};
use super::{GradSet, Prepare, builder::new_report};
use crate::gpu::guard::{failed, guarded};
use crate::gpu::mailbox::{Receiver, mailbox};
use crate::gpu::make::staging;
use crate::gpu::readback::PATIENCE;
use crate::report::{Report, TensorNorm, TensorReport};
use crate::{Error, Limit, NormType, Unscale};

/// What [`GradSet::measure`] measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Measure {
    norm_type: NormType,
    per_tensor: bool,
}

/// A measurement on its way from the GPU. Submit its encoder, then read it. Dropping it forgets it.
#[derive(Debug)]
#[must_use = "read it after its encoder was submitted"]
pub struct Measured {
    set: GradSet,
    measure: Measure,
    pool: Pool,
    /// Given back when this is dropped.
    staging: wgpu::Buffer,
    norms_at: u64,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Measurement {
    /// Which norm.
    pub norm_type: NormType,
    /// Norm over all tensors that count, unscaled; `None` if one of the set holds NaN or infinity.
    pub total_norm: Option<f64>,
    /// The tensors that hold something nonfinite, in the order of the set.
    pub nonfinite: Vec<TensorReport>,
    /// The norm of each tensor, if it was asked for.
    pub tensor_norms: Option<Vec<TensorNorm>>,
}

type Pool = Arc<Mutex<Vec<wgpu::Buffer>>>;

/// Where measurements are taken, apart from the set's verdict.
#[derive(Debug)]
pub(crate) struct Meter {
    finish: Finish,
    norms: TensorNorms,
    /// Staging buffers that no measurement uses.
    pool: Pool,
}

impl Measure {
    /// The L2 norm of all tensors.
    pub fn norm() -> Self {
        Self::default()
    }

    /// Another norm than L2; an L1 norm needs [`Prepare::L1`].
    pub fn norm_type(self, norm_type: NormType) -> Self {
        Self { norm_type, ..self }
    }

    /// The norm of each tensor too.
    pub fn per_tensor(self) -> Self {
        Self { per_tensor: true, ..self }
    }
}

impl Meter {
    pub fn new(set: &GradSet, planned: &Planned) -> Result<Self, Error> {
        let shared = &set.0.context.shared;
        let report = new_report(&set.0.context, set.name(), set.0.tensors.len())?;
        let norms = TensorNorms::new(set, planned, &report)?;
        let group = guarded(&shared.device, "binding a measurement", || {
            finish_group(shared, &planned.scratch, &report)
        })?;
        let meter = Self { finish: Finish { report, group }, norms, pool: Pool::default() };
        let first = meter.new_staging(set)?;
        give_back(&meter.pool, first);
        Ok(meter)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.finish.report.size() + self.norms.memory_bytes()
    }

    fn staging(&self, set: &GradSet) -> Result<wgpu::Buffer, Error> {
        let free = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.map_or_else(|| self.new_staging(set), Ok)
    }

    fn new_staging(&self, set: &GradSet) -> Result<wgpu::Buffer, Error> {
        let size = self.finish.report.size() + self.norms.clips.size();
        let device = set.0.context.device();
        guarded(device, "allocating a measurement", || staging(device, "gradclip measurement", size))
    }
}

fn give_back(pool: &Pool, staging: wgpu::Buffer) {
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(staging);
}

impl GradSet {
    /// Records a measurement of the gradients as they are, divided by `scale`: no verdict changes, no step is counted, no
    /// scale is updated, and nothing is written. Any number of times, between steps and beside open ones, on one encoder
    /// with them. Prepare it with [`Prepare::Measure`].
    ///
    /// # Errors
    /// [`Error::NotPrepared`]; [`Error::LossScale`] or [`Error::Divisor`] for a number outside its domain;
    /// [`Error::Wgpu`] if there is no memory for more measurements on their way. Nothing is recorded then.
    pub fn measure(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        measure: Measure,
    ) -> Result<Measured, Error> {
        let (unscale, limit) = (scale.into(), Limit::none().norm_type(measure.norm_type).any());
        let words = [&unscale.scale, &unscale.divisor];
        if words.iter().any(|number| number.value().is_none()) {
            let why = "a measurement takes numbers of the host".into();
            return Err(Error::Word { offset: 0, why });
        }
        let compiled = self.compiled();
        let meter = compiled.planned.extras.meter.get().ok_or_else(|| Prepare::Measure.missing(self))?;
        let told = Told { unscale: &unscale, limit: &limit, scaler: None, in_place: false };
        let step = Ready::new(self, told, Also::default())?;
        let staging = meter.staging(self)?;
        let mut pass = begin_pass(encoder, "gradclip measure");
        step.record_partials(&mut pass);
        step.record_decision(&mut pass, &self.0.norm_finish, &meter.finish.group);
        if measure.per_tensor {
            step.record_extra(&mut pass, &meter.norms.norms);
        }
        step.release(&pass);
        drop(pass);
        let (report, clips) = (&meter.finish.report, &meter.norms.clips);
        encoder.copy_buffer_to_buffer(report, 0, &staging, 0, report.size());
        encoder.copy_buffer_to_buffer(clips, 0, &staging, report.size(), clips.size());
        let (sender, mapped) = mailbox();
        encoder.map_buffer_on_submit(&staging, wgpu::MapMode::Read, .., move |result| sender.send(result));
        // Between the halves of a sharded step nothing else may happen to the partials.
        self.forget_ledger();
        let (set, pool, norms_at) = (self.clone(), Arc::clone(&meter.pool), report.size());
        Ok(Measured { set, measure, pool, staging, norms_at, mapped })
    }
}

impl Measured {
    /// What was measured. Blocks until the GPU is done with everything submitted so far, at most a minute.
    ///
    /// # Errors
    /// [`Error::NotRun`] if the encoder was not submitted; [`Error::Timeout`]; [`Error::DeviceLost`].
    pub fn read(mut self) -> Result<Measurement, Error> {
        let device = self.set.0.context.device();
        let wait = wgpu::PollType::Wait { submission_index: None, timeout: Some(PATIENCE) };
        match device.poll(wait) {
            Err(wgpu::PollError::Timeout) => {
                let whose = format!("set \"{}\": a measurement", self.set.0.name);
                return Err(Error::Timeout { whose, patience: PATIENCE });
            }
            Err(error) => return Err(failed(device, "reading a measurement", &error)),
            Ok(_) => {}
        }
        // The thread whose poll mapped the buffer may be slow to say so.
        let answer = self.mapped.wait(Duration::from_millis(100));
        self.finish(answer)
    }

    /// [`Measured::read`] without blocking: the future resolves when the engine's own [`wgpu::Device::poll`] or later
    /// submissions find the copy done.
    ///
    /// # Errors
    /// The future's output, as [`Measured::read`] but for the timeout.
    pub async fn read_async(mut self) -> Result<Measurement, Error> {
        let answer = (&mut self.mapped).await;
        self.finish(answer)
    }

    fn finish(&self, answer: Option<Result<(), wgpu::BufferAsyncError>>) -> Result<Measurement, Error> {
        let device = self.set.0.context.device();
        match answer {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(failed(device, "reading a measurement", &error)),
            None => return Err(Error::NotRun { set: self.set.0.name.clone() }),
        }
        let view = self
            .staging
            .get_mapped_range(..)
            .map_err(|error| failed(device, "reading a measurement", &error))?;
        let tensors = &self.set.0.tensors;
        let report = Report::decode(&view[..self.norms_at as usize], tensors);
        let norms = &view[self.norms_at as usize..];
        Ok(Measurement {
            norm_type: self.measure.norm_type,
            total_norm: report.total_norm,
            nonfinite: report.nonfinite,
            tensor_norms: self.measure.per_tensor.then(|| GpuTensorClip::norms(norms, tensors)),
        })
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // One that is not mapped may be about to be: then it is left to its encoder.
        if self.staging.get_mapped_range(..).is_ok() {
            self.staging.unmap();
            give_back(&self.pool, self.staging.clone());
        }
    }
}
