//! Reading buffers back, blocking or async.

use std::time::Duration;

use super::context::Context;
use super::guard::{failed, guarded};
use super::mailbox::{Receiver, mailbox};
use super::make::staging;
use crate::Error;

/// How long what blocks waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes on their way from the GPU.
#[derive(Debug)]
pub(crate) struct Pending {
    context: Context,
    whose: String,
    what: String,
    staging: wgpu::Buffer,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
    submission: wgpu::SubmissionIndex,
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
    start_read(context, whose, size, record)?.wait(PATIENCE)
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

/// Starts reading what the commands of `record` leave in the buffer that it is given.
pub(crate) fn start_read(
    context: &Context,
    whose: &str,
    size: u64,
    record: impl FnOnce(&mut wgpu::CommandEncoder, &wgpu::Buffer) -> Result<(), Error>,
) -> Result<Pending, Error> {
    let (device, queue) = (context.device(), context.queue());
    let what = format!("{whose}: reading back");
    let (staging, mapped, submission) = guarded(device, &what, || {
        let staging = staging(device, "gradclip readback", size);
        let mut encoder = device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("gradclip readback") });
        record(&mut encoder, &staging)?;
        let submission = queue.submit([encoder.finish()]);
        let (sender, mapped) = mailbox();
        staging.map_async(wgpu::MapMode::Read, .., move |result| sender.send(result));
        Ok::<_, Error>((staging, mapped, submission))
    })??;
    Ok(Pending { context: context.clone(), whose: whose.into(), what, staging, mapped, submission })
}

impl Pending {
    /// Blocks for at most `patience`.
    pub fn wait(self, patience: Duration) -> Result<Vec<u8>, Error> {
        let poll = self.context.device().poll(wgpu::PollType::Wait {
            submission_index: Some(self.submission.clone()),
            timeout: Some(patience),
        });
        match poll {
            Ok(_) => pollster::block_on(self.bytes()),
            Err(wgpu::PollError::Timeout) => Err(Error::Timeout { whose: self.whose, patience }),
            Err(error) => Err(self.error(&error)),
        }
    }

    pub async fn bytes(mut self) -> Result<Vec<u8>, Error> {
        match (&mut self.mapped).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(self.error(&error)),
            None => return Err(self.error(&"the device dropped the request")),
        }
        let view = self.staging.get_mapped_range(..).map_err(|e| self.error(&e))?;
        Ok(view.to_vec())
    }

    fn error(&self, error: &dyn std::fmt::Display) -> Error {
        failed(self.context.device(), &self.what, error)
    }
}
