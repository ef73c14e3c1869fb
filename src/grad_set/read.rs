//! Reading what a step decided: blocking or async, after it was submitted.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::GradSet;
use crate::gpu::readback::{PATIENCE, Pending, read_buffer, start_copy};
use crate::report::VERDICT_BYTES;
use crate::{Error, Report, Verdict};

impl GradSet {
    /// The report of the latest step that the GPU ran, whatever is being recorded meanwhile: [`Report::run`] tells which.
    /// Submit the encoder of the step first. Blocks until the GPU is done with everything submitted so far, at most a
    /// minute: for logs and tests, not for every step. Any thread may ask, while others record.
    ///
    /// # Errors
    /// [`Error::NotRun`] if no step ran; [`Error::Timeout`]; [`Error::DeviceLost`].
    pub fn read_report(&self) -> Result<Report, Error> {
        self.read_report_timeout(PATIENCE)
    }

    /// [`GradSet::read_report`] with a limit of its own on the time to wait.
    ///
    /// # Errors
    /// As [`GradSet::read_report`].
    pub fn read_report_timeout(&self, patience: Duration) -> Result<Report, Error> {
        self.decode(&self.start_report()?.wait(patience)?)
    }

    /// [`GradSet::read_report`] without blocking. The copy is submitted at once; the future, which owns what it needs,
    /// resolves when the engine's own [`wgpu::Device::poll`] or later submissions find it done (on the web, the browser
    /// does).
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_report`] but for the timeout.
    pub fn read_report_async(&self) -> impl Future<Output = Result<Report, Error>> + Send + use<> {
        let (set, pending) = (self.clone(), self.start_report());
        async move { set.decode(&pending?.bytes().await?) }
    }

    /// The verdict as it is on the GPU, after everything submitted so far. Blocks, as [`GradSet::read_report`].
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::DeviceLost`].
    pub fn read_verdict(&self) -> Result<Verdict, Error> {
        let whose = format!("set \"{}\"", self.0.name);
        let bytes = read_buffer(&self.0.context, &whose, &self.0.report, VERDICT_BYTES)?;
        Ok(bytemuck::pod_read_unaligned(&bytes))
    }

    /// Steps of this set that were recorded: with [`Report::run`], how far the GPU is behind.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.0.recorded.load(Ordering::Acquire)
    }

    fn start_report(&self) -> Result<Pending, Error> {
        start_copy(&self.0.context, &format!("set \"{}\"", self.0.name), &self.0.report)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Report, Error> {
        let report = Report::decode(bytes, &self.0.tensors);
        if report.run == 0 {
            return Err(Error::NotRun { set: self.0.name.clone() });
        }
        Ok(report)
    }
}
