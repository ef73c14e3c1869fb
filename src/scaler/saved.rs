//! Saving, loading, and going on after a halt.

use std::future::Future;

use super::state::GpuState;
use super::watch::STATE_BYTES;
use crate::gpu::guard::guarded;
use crate::gpu::readback::{PATIENCE, Pending, start_read};
use crate::grad_set::WeakSet;
use crate::{Error, GradScaler, GradSet, ScalerState, SetState};

impl GradScaler {
    /// Lets training go on after [`Error::TooManySkipped`]: counts of skipped steps in a row start again. It reaches the GPU
    /// with the next submission, before its commands.
    ///
    /// # Errors
    /// [`Error::Wgpu`] if there is no memory to send it; [`Error::DeviceLost`].
    pub fn resume(&self) -> Result<(), Error> {
        let mut book = self.book();
        guarded(self.0.context.device(), "resuming a GradScaler", || {
            let queue = self.0.context.queue();
            let at = std::mem::offset_of!(GpuState, halted) as u64;
            queue.write_buffer(&self.0.state, at, &[0; 4]);
            for set in book.known.iter().filter_map(WeakSet::upgrade) {
                set.forget_skipped();
            }
        })?;
        self.0.watch.forget();
        book.loaded.values_mut().for_each(|set| set.consecutive_skipped = 0);
        book.sharded.clear();
        book.stalled = None;
        Ok(())
    }

    /// The state, read from the GPU after everything submitted so far, with the steps that each set has taken. Blocks: for
    /// checkpoints.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if the device was lost, [`Error::Timeout`] after a minute.
    pub fn state_dict(&self) -> Result<ScalerState, Error> {
        let (pending, saved) = self.start_state()?;
        Ok(saved.decode(&pending.wait(PATIENCE)?))
    }

    /// [`GradScaler::state_dict`] without blocking.
    ///
    /// # Errors
    /// The future's output, as [`GradScaler::state_dict`] but for the timeout.
    pub fn state_dict_async(&self) -> impl Future<Output = Result<ScalerState, Error>> + Send + use<> {
        let started = self.start_state();
        async move {
            let (pending, saved) = started?;
            Ok(saved.decode(&pending.bytes().await?))
        }
    }

    fn start_state(&self) -> Result<(Pending, Saved), Error> {
        let saved = {
            let next_update = self.reports().next_update;
            let book = self.book();
            let sets = book.known.iter().filter_map(WeakSet::upgrade);
            // The state of a set that was loaded and not begun since is what was loaded.
            let (sets, loaded) = (sets.filter(|set| !book.loaded.contains_key(set.name())), &book.loaded);
            Saved { sets: sets.collect(), loaded: loaded.values().cloned().collect(), next_update }
        };
        let size = STATE_BYTES + 8 * saved.sets.len() as u64;
        let pending = start_read(&self.0.context, "GradScaler", size, |encoder, staging| {
            encoder.copy_buffer_to_buffer(&self.0.state, 0, staging, 0, STATE_BYTES);
            for (set, at) in saved.sets.iter().zip((STATE_BYTES..).step_by(8)) {
                set.copy_state(encoder, staging, at);
            }
            Ok(())
        })?;
        Ok((pending, saved))
    }

    /// Goes on from a saved state, bit for bit, with the steps that each set has taken: sets are told apart by name, and
    /// those that were not begun yet get theirs when they are. It reaches the GPU with the next submission, before its
    /// commands. It does not wait, so it needs no other form where nothing can.
    ///
    /// # Errors
    /// [`Error::State`] if the state is of another version or contradicts itself or the configuration,
    /// [`Error::LeftOut`] while a step is open, [`Error::Wgpu`] if wgpu has no memory left to send it,
    /// [`Error::DeviceLost`]. The scaler then stays as it was.
    pub fn load_state_dict(&self, state: &ScalerState) -> Result<(), Error> {
        state.check(&self.0.config)?;
        let mut book = self.book();
        if let Some((_, set)) = book.open.first() {
            return Err(Error::LeftOut { set: set.name().into() });
        }
        let cap = self.0.config.max_consecutive_skipped;
        let in_a_row = state.sets.iter().map(|set| set.consecutive_skipped).max().unwrap_or(0);
        let stalled = cap.filter(|&most| in_a_row >= most).map(|_| in_a_row);
        let mut gpu = state.to_gpu();
        gpu.halted = u32::from(stalled.is_some());
        guarded(self.0.context.device(), "loading the scaler's state", || {
            self.0.context.queue().write_buffer(&self.0.state, 0, bytemuck::bytes_of(&gpu));
        })?;
        book.loaded = state.sets.iter().map(|set| (set.set.clone(), set.clone())).collect();
        let known: Vec<GradSet> = book.known.iter().filter_map(WeakSet::upgrade).collect();
        for set in known {
            let fresh = SetState::new(set.name(), 0);
            let state = book.loaded.remove(set.name()).unwrap_or(fresh);
            set.put_state(&state)?;
        }
        book.sharded.clear();
        book.stalled = stalled;
        drop(book);
        self.0.watch.forget();
        self.reports().next_update = state.next_update;
        Ok(())
    }
}

/// A state on its way, with what the host knows of it.
struct Saved {
    sets: Vec<GradSet>,
    loaded: Vec<SetState>,
    next_update: u64,
}

impl Saved {
    fn decode(self, bytes: &[u8]) -> ScalerState {
        let (state, sets) = bytes.split_at(STATE_BYTES as usize);
        let read = self.sets.iter().zip(sets.chunks_exact(8)).map(|(set, bytes)| set.decode_state(bytes));
        ScalerState {
            next_update: self.next_update,
            sets: read.chain(self.loaded).collect(),
            ..ScalerState::from_gpu(bytemuck::pod_read_unaligned(state))
        }
    }
}
