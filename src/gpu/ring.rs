//! The numbers of the host on their way to the GPU.
//!
//! A step's numbers lie in a slot of a buffer that is its own from recording until the GPU is done with the commands, or
//! until these are dropped. So two steps in one encoder, or two encoders submitted in any order, cannot see each other's,
//! and no step makes a buffer. `Queue::write_buffer` takes effect before the commands of the next submission, which a slot
//! that no submitted command uses can bear.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Shared;
use super::guard::guarded;
use super::make::{empty_uniform, group, part};
use crate::Error;

/// WebGPU's largest alignment of a uniform binding's offset.
pub(crate) const SLOT_BYTES: u64 = 256;
/// Steps that are recorded and not done, before the ring grows by as many.
const CHUNK_SLOTS: u32 = 256;

/// Slots for the numbers of steps, shared by all sets of a context.
#[derive(Debug)]
pub(crate) struct Ring(Arc<Mutex<Slots>>);

#[derive(Debug, Default)]
struct Slots {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Chunk {
    buffer: wgpu::Buffer,
    /// Bound at the offset of a slot.
    group: wgpu::BindGroup,
}

/// A slot that is in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    ring: Arc<Mutex<Slots>>,
    number: u32,
}

/// Where a kernel finds the numbers of a step.
#[derive(Debug)]
pub(crate) struct Bound {
    group: wgpu::BindGroup,
    offset: u32,
}

impl Ring {
    pub fn new(shared: &Shared) -> Result<Self, Error> {
        let ring = Self(Arc::default());
        ring.grow(shared, &mut ring.lock())?;
        Ok(ring)
    }

    /// Writes `bytes` to a free slot.
    pub fn put(&self, shared: &Shared, bytes: &[u8]) -> Result<(Slot, Bound), Error> {
        let mut slots = self.lock();
        if slots.free.is_empty() {
            self.grow(shared, &mut slots)?;
        }
        // Never empty after it grew.
        let number = slots.free.pop().unwrap_or(0);
        let slot = Slot { ring: Arc::clone(&self.0), number };
        let chunk = &slots.chunks[(number / CHUNK_SLOTS) as usize];
        let offset = number % CHUNK_SLOTS * SLOT_BYTES as u32;
        shared.queue.write_buffer(&chunk.buffer, u64::from(offset), bytes);
        let bound = Bound { group: chunk.group.clone(), offset };
        drop(slots);
        Ok((slot, bound))
    }

    fn grow(&self, shared: &Shared, slots: &mut Slots) -> Result<(), Error> {
        let size = u64::from(CHUNK_SLOTS) * SLOT_BYTES;
        let chunk = guarded(&shared.device, "allocating room for the numbers of steps", || {
            let buffer = empty_uniform(shared, "gradclip steps", size);
            let group = group(shared, &shared.layouts.step, &[part(&buffer, 0, SLOT_BYTES)]);
            Chunk { buffer, group }
        })?;
        let first = slots.chunks.len() as u32 * CHUNK_SLOTS;
        slots.chunks.push(chunk);
        // Room for all, so that giving one back never allocates.
        slots.free.reserve((first + CHUNK_SLOTS) as usize);
        slots.free.extend((first..first + CHUNK_SLOTS).rev());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Gives the slot back when the GPU is done with what `pass` belongs to, or when that is dropped.
    pub fn release_after(self, pass: &wgpu::ComputePass<'_>) {
        pass.on_submitted_work_done(move || drop(self));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.number);
    }
}

impl Bound {
    pub fn set(&self, pass: &mut wgpu::ComputePass<'_>) {
        pass.set_bind_group(1, &self.group, &[self.offset]);
    }
}
