//! What a set remembers between steps.

use std::future::Future;

use super::GradSet;
use crate::Error;
use crate::gpu::guard::guarded;
use crate::gpu::readback::{PATIENCE, Pending, start_read};
use crate::report::STATE_AT;

/// What a [`GradSet`] remembers, to save with its optimizer and to go on from. The state of a
/// [`GradScaler`](crate::GradScaler) holds those of its sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SetState {
    /// Name of the set.
    pub set: String,
    /// Steps that were taken, and updated from where there is a scaler: AdamW's t.
    pub steps: u32,
    /// Steps that were skipped since the last that was taken.
    pub consecutive_skipped: u32,
}

/// Bytes of both counts, which lie together.
const STATE_BYTES: u64 = 8;

impl SetState {
    /// A set that has taken so many steps: for a checkpoint of another library.
    #[must_use]
    pub fn new(set: impl Into<String>, steps: u32) -> Self {
        Self { set: set.into(), steps, consecutive_skipped: 0 }
    }
}

impl GradSet {
    /// The state, read from the GPU after everything submitted so far. Blocks: for checkpoints.
    ///
    /// # Errors
    /// [`Error::Timeout`] after a minute; [`Error::DeviceLost`].
    pub fn state(&self) -> Result<SetState, Error> {
        Ok(self.decode_state(&self.start_state()?.wait(PATIENCE)?))
    }

    /// [`GradSet::state`] without blocking.
    ///
    /// # Errors
    /// The future's output, as [`GradSet::state`] but for the timeout.
    pub fn state_async(&self) -> impl Future<Output = Result<SetState, Error>> + Send + use<> {
        let (set, pending) = (self.clone(), self.start_state());
        async move { Ok(set.decode_state(&pending?.bytes().await?)) }
    }

    /// Goes on from a saved state. It reaches the GPU with the next submission, before its commands. For a set without a
    /// scaler: the state of a scaler brings those of its sets along.
    ///
    /// # Errors
    /// [`Error::State`] if it is the state of a set with another name; [`Error::StepOpen`] while a step is open;
    /// [`Error::Wgpu`] if there is no memory to send it; [`Error::DeviceLost`].
    pub fn load_state(&self, state: &SetState) -> Result<(), Error> {
        if state.set != self.0.name {
            return Err(Error::State {
                what: format!("it is of set \"{}\", not of \"{}\"", state.set, self.0.name),
            });
        }
        self.refuse_open()?;
        self.put_state(state)
    }

    pub(crate) fn put_state(&self, state: &SetState) -> Result<(), Error> {
        let what = format!("set \"{}\": loading its state", self.0.name);
        guarded(self.0.context.device(), &what, || {
            let words = [state.steps, state.consecutive_skipped];
            self.0.context.queue().write_buffer(&self.0.report, STATE_AT, bytemuck::cast_slice(&words));
        })
    }

    /// Starts the count of skipped steps in a row again. Inside an error scope.
    pub(crate) fn forget_skipped(&self) {
        self.0.context.queue().write_buffer(&self.0.report, STATE_AT + 4, &[0; 4]);
    }

    fn start_state(&self) -> Result<Pending, Error> {
        let whose = format!("set \"{}\": its state", self.0.name);
        start_read(&self.0.context, &whose, STATE_BYTES, |encoder, staging| {
            self.copy_state(encoder, staging, 0);
            Ok(())
        })
    }

    /// Copies the counts to byte `at`.
    pub(crate) fn copy_state(&self, encoder: &mut wgpu::CommandEncoder, staging: &wgpu::Buffer, at: u64) {
        encoder.copy_buffer_to_buffer(&self.0.report, STATE_AT, staging, at, STATE_BYTES);
    }

    /// `bytes`: of `copy_state`.
    pub(crate) fn decode_state(&self, bytes: &[u8]) -> SetState {
        let [steps, consecutive_skipped]: [u32; 2] = bytemuck::pod_read_unaligned(&bytes[..8]);
        SetState { set: self.0.name.clone(), steps, consecutive_skipped }
    }
}
