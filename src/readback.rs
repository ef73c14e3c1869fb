//! Reading a report: blocking or async, after the step was submitted.

use std::future::Future;
use std::sync::PoisonError;
use std::time::Duration;

use futures_intrusive::channel::shared::{OneshotReceiver, oneshot_channel};

use crate::context::guarded;
use crate::report::Verdict;
use crate::{Error, GradSet, Report};

/// How long [`GradSet::read_report`] waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was recorded and what was seen of it.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Steps recorded.
    pub recorded: u64,
    /// `recorded` at the last report, and the run that it showed.
    seen: (u64, u32),
}

type Mapped = OneshotReceiver<Result<(), wgpu::BufferAsyncError>>;

struct Pending {
    staging: wgpu::Buffer,
    mapped: Mapped,
    submission: wgpu::SubmissionIndex,
}

impl GradSet {
    /// The report of the latest step that the GPU ran. Submit the encoder of the step first. Blocks until the GPU is
    /// done with everything submitted so far, at most a minute: for logs and tests, not for every step.
    ///
    /// # Errors
    /// [`Error::NotRun`] if no step ran, or none since the last report although one was recorded; [`Error::Timeout`];
    /// [`Error::Wgpu`] if the device was lost.
    pub fn read_report(&self) -> Result<Report, Error> {
        self.read_report_timeout(PATIENCE)
    }

    /// [`GradSet::read_report`] with a limit of its own on the time to wait.
    ///
    /// # Errors
    /// As [`GradSet::read_report`].
    pub fn read_report_timeout(&self, patience: Duration) -> Result<Report, Error> {
        let pending = self.start_read()?;
        let poll = self.context.device().poll(wgpu::PollType::Wait {
            submission_index: Some(pending.submission.clone()),
            timeout: Some(patience),
        });
        match poll {
            Ok(_) => pollster::block_on(self.finish_read(pending)),
            Err(wgpu::PollError::Timeout) => {
                Err(Error::Timeout { set: self.name.clone(), seconds: patience.as_secs() })
            }
            Err(error) => Err(self.wgpu_error(&error)),
        }
    }

    /// [`GradSet::read_report`] without blocking. The copy is submitted at once; the future resolves when the engine's
    /// own [`wgpu::Device::poll`] or later submissions find it done (on the web, the browser does).
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_report`] but for the timeout.
    pub fn read_report_async(&self) -> impl Future<Output = Result<Report, Error>> + use<'_> {
        let pending = self.start_read();
        async move { self.finish_read(pending?).await }
    }

    fn start_read(&self) -> Result<Pending, Error> {
        let shared = &self.context.shared;
        let what = format!("set \"{}\": reading the report", self.name);
        guarded(&shared.device, &what, || {
            let staging = shared.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("gradclip readback"),
                size: self.report.size(),
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let mut encoder = shared
                .device
                .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("gradclip readback") });
            encoder.copy_buffer_to_buffer(&self.report, 0, &staging, 0, self.report.size());
            let submission = shared.queue.submit([encoder.finish()]);
            let (send, mapped) = oneshot_channel();
            staging.map_async(wgpu::MapMode::Read, .., move |result| {
                let _ = send.send(result);
            });
            Pending { staging, mapped, submission }
        })
    }

    async fn finish_read(&self, pending: Pending) -> Result<Report, Error> {
        match pending.mapped.receive().await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(self.wgpu_error(&error)),
            None => return Err(self.wgpu_error(&"the device dropped the request")),
        }
        let view = pending.staging.get_mapped_range(..).map_err(|e| self.wgpu_error(&e))?;
        let verdict: Verdict = bytemuck::pod_read_unaligned(&view[..size_of::<Verdict>()]);
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen_recorded, seen_run) = reading.seen;
        if verdict.run == seen_run && (verdict.run == 0 || reading.recorded != seen_recorded) {
            return Err(Error::NotRun { set: self.name.clone() });
        }
        reading.seen = (reading.recorded, verdict.run);
        Ok(Report::decode(&view, &self.tensors))
    }

    fn wgpu_error(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Wgpu { what: format!("set \"{}\": reading the report", self.name), message: error.to_string() }
    }
}
