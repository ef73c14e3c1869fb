//! Reading a report: blocking or async, after the step was submitted.

use std::future::Future;
use std::sync::PoisonError;
use std::time::Duration;

use futures_intrusive::channel::shared::{OneshotReceiver, oneshot_channel};

use crate::gpu::context::{guarded, on_one_line};
use crate::report::Verdict;
use crate::{Context, Error, GradSet, Report};

/// How long [`GradSet::read_report`] waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What was recorded and what was seen of it.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Steps recorded.
    pub recorded: u64,
    /// `recorded` at the last report, and the run that it showed.
    seen: (u64, u32),
}

type Mapped = OneshotReceiver<Result<(), wgpu::BufferAsyncError>>;

pub(crate) struct Pending {
    whose: String,
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
        let (pending, recorded) = self.start_read()?;
        pending.wait(&self.context, patience)?;
        pollster::block_on(self.finish_read(pending, recorded))
    }

    /// [`GradSet::read_report`] without blocking. The copy is submitted at once; the future resolves when the engine's
    /// own [`wgpu::Device::poll`] or later submissions find it done (on the web, the browser does).
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_report`] but for the timeout.
    pub fn read_report_async(&self) -> impl Future<Output = Result<Report, Error>> + use<'_> {
        let pending = self.start_read();
        async move {
            let (pending, recorded) = pending?;
            self.finish_read(pending, recorded).await
        }
    }

    /// The verdict as it is on the GPU, after everything submitted so far. Blocks, as [`GradSet::read_report`].
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Wgpu`] if the device was lost.
    pub fn read_verdict(&self) -> Result<Verdict, Error> {
        let whose = format!("set \"{}\"", self.name);
        let bytes = read_buffer(&self.context, &whose, &self.report, size_of::<Verdict>() as u64)?;
        Ok(bytemuck::pod_read_unaligned(&bytes))
    }

    /// Also how many steps were recorded up to now: those that the report can know of.
    fn start_read(&self) -> Result<(Pending, u64), Error> {
        let recorded = self.reading.lock().unwrap_or_else(PoisonError::into_inner).recorded;
        let whose = format!("set \"{}\"", self.name);
        Ok((start_copy(&self.context, &whose, &self.report)?, recorded))
    }

    async fn finish_read(&self, pending: Pending, recorded: u64) -> Result<Report, Error> {
        let bytes = pending.bytes().await?;
        let verdict: Verdict = bytemuck::pod_read_unaligned(&bytes[..size_of::<Verdict>()]);
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen_recorded, seen_run) = reading.seen;
        if verdict.run == seen_run && (verdict.run == 0 || recorded != seen_recorded) {
            return Err(Error::NotRun { set: self.name.clone() });
        }
        reading.seen = (recorded, verdict.run);
        Ok(Report::decode(&bytes, &self.tensors))
    }
}

/// The first `size` bytes of a buffer after everything submitted so far. Blocks.
pub(crate) fn read_buffer(
    context: &Context,
    whose: &str,
    buffer: &wgpu::Buffer,
    size: u64,
) -> Result<Vec<u8>, Error> {
    read_recorded(context, whose, size, copy_of(buffer))
}

/// The `size` bytes that the commands of `record` leave in the buffer that it is given; they and the copy are one
/// submission. Blocks, at most a minute.
pub(crate) fn read_recorded(
    context: &Context,
    whose: &str,
    size: u64,
    record: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer) -> Result<(), Error>,
) -> Result<Vec<u8>, Error> {
    let pending = start_read(context, whose, size, record)?;
    pending.wait(context, PATIENCE)?;
    pollster::block_on(pending.bytes())
}

/// Starts reading all of a buffer.
pub(crate) fn start_copy(context: &Context, whose: &str, buffer: &wgpu::Buffer) -> Result<Pending, Error> {
    start_read(context, whose, buffer.size(), copy_of(buffer))
}

/// Fills the staging buffer from the start of another.
fn copy_of(
    buffer: &wgpu::Buffer,
) -> impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer) -> Result<(), Error> {
    |encoder, staging| {
        encoder.copy_buffer_to_buffer(buffer, 0, staging, 0, staging.size());
        Ok(())
    }
}

fn start_read(
    context: &Context,
    whose: &str,
    size: u64,
    record: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer) -> Result<(), Error>,
) -> Result<Pending, Error> {
    let (device, queue) = (context.device(), context.queue());
    guarded(device, &format!("{whose}: reading back"), || {
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("gradclip readback"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("gradclip readback") });
        record(&mut encoder, &staging)?;
        let submission = queue.submit([encoder.finish()]);
        let (send, mapped) = oneshot_channel();
        staging.map_async(wgpu::MapMode::Read, .., move |result| {
            let _ = send.send(result);
        });
        Ok(Pending { whose: whose.into(), staging, mapped, submission })
    })?
}

impl Pending {
    pub fn wait(&self, context: &Context, patience: Duration) -> Result<(), Error> {
        let poll = context.device().poll(wgpu::PollType::Wait {
            submission_index: Some(self.submission.clone()),
            timeout: Some(patience),
        });
        match poll {
            Ok(_) => Ok(()),
            Err(wgpu::PollError::Timeout) => Err(Error::Timeout { whose: self.whose.clone(), patience }),
            Err(error) => Err(self.error(&error)),
        }
    }

    pub async fn bytes(&self) -> Result<Vec<u8>, Error> {
        match self.mapped.receive().await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(self.error(&error)),
            None => return Err(self.error(&"the device dropped the request")),
        }
        let view = self.staging.get_mapped_range(..).map_err(|e| self.error(&e))?;
        Ok(view.to_vec())
    }

    fn error(&self, error: &dyn std::fmt::Display) -> Error {
        Error::Wgpu {
            what: format!("{}: reading back", self.whose),
            message: on_one_line(&error.to_string()),
        }
    }
}
