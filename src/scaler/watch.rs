//! Whether the scaler has halted, which the host hears of without asking and without waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::GpuState;

/// Copies of the state on their way at once. The halt lasts, so that one that finds no place can be left out.
const PLACES: usize = 4;
pub(super) const STATE_BYTES: u64 = size_of::<GpuState>() as u64;

/// Copies of the scaler's state on their way to the host.
#[derive(Debug)]
pub(super) struct Watch {
    places: [wgpu::Buffer; PLACES],
    inbox: Arc<Mutex<[Place; PLACES]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Place {
    #[default]
    Free,
    /// The copy was recorded.
    Sent,
    /// The copy is mapped.
    Arrived,
    /// It was recorded before the state was loaded or the scaler resumed.
    Outdated,
}

/// Says what became of a copy, also if wgpu drops it.
struct Messenger {
    inbox: Arc<Mutex<[Place; PLACES]>>,
    place: usize,
    arrived: bool,
}

impl Messenger {
    fn deliver(mut self, arrived: bool) {
        self.arrived = arrived;
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let was = inbox[self.place];
        inbox[self.place] = match (self.arrived, was) {
            (false, _) => Place::Free,
            (true, Place::Outdated) => Place::Outdated,
            (true, _) => Place::Arrived,
        };
    }
}

impl Watch {
    pub fn new(make: impl Fn() -> wgpu::Buffer) -> Self {
        Self { places: [(); PLACES].map(|()| make()), inbox: Arc::default() }
    }

    /// Copies the state after an update.
    pub fn send(&self, encoder: &mut wgpu::CommandEncoder, state: &wgpu::Buffer) {
        let mut inbox = self.inbox();
        let Some(place) = inbox.iter().position(|&place| place == Place::Free) else { return };
        inbox[place] = Place::Sent;
        drop(inbox);
        let staging = &self.places[place];
        encoder.copy_buffer_to_buffer(state, 0, staging, 0, STATE_BYTES);
        let messenger = Messenger { inbox: Arc::clone(&self.inbox), place, arrived: false };
        encoder.map_buffer_on_submit(staging, wgpu::MapMode::Read, .., move |result| {
            messenger.deliver(result.is_ok());
        });
    }

    /// Whether a copy that arrived says that the scaler has halted, and after how many skipped updates in a row.
    pub fn heard(&self) -> Option<u32> {
        let mut heard = None;
        for (place, staging) in self.places.iter().enumerate() {
            let was = self.inbox()[place];
            // What is outdated has arrived as soon as it can be read.
            let Ok(view) = staging.get_mapped_range(..) else { continue };
            let state: GpuState = bytemuck::pod_read_unaligned(&view[..STATE_BYTES as usize]);
            drop(view);
            if was == Place::Sent {
                // Its messenger is on the way.
                continue;
            }
            staging.unmap();
            self.inbox()[place] = Place::Free;
            if was == Place::Arrived && state.halted != 0 {
                heard = Some(state.consecutive_skipped);
            }
        }
        heard
    }

    /// What is on its way no longer counts.
    pub fn forget(&self) {
        for place in self.inbox().iter_mut().filter(|place| **place != Place::Free) {
            *place = Place::Outdated;
        }
    }

    fn inbox(&self) -> MutexGuard<'_, [Place; PLACES]> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
