//! Reports of a scaler's steps, fetched without a stall: each update copies what the steps decided into a staging
//! buffer of a small ring, which wgpu maps when the encoder is submitted.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::order::{Recorded, Step};
use super::state::GpuState;
use crate::gpu::guard::{failed, guarded};
use crate::gpu::make::staging;
use crate::grad_set::GpuTensorClip;
use crate::report::{Report, STATE_AT, TensorNorm, VERDICT_BYTES, Verdict, decode_lost};
use crate::slice::Tensor;
use crate::{Error, GradScaler, ScalerState, SetState};

/// What one update of a scaler decided: one entry a set, and the scaler after it.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct UpdateReport {
    /// Number of the update, counted from 0 as they were recorded; it goes on where a loaded state left off.
    pub update: u64,
    /// The steps, in the order in which they were given to [`GradScaler::update`].
    pub steps: Vec<StepReport>,
    /// The scaler after the update: the next scale, the running counts, and what the sets of this update remember.
    pub scaler: ScalerState,
    /// Clipped steps per step taken, up to now.
    pub clip_rate: f64,
    /// Reports lost so far because the ring was full.
    pub lost: u64,
}

/// What one step of one set decided.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct StepReport {
    /// Name of the set.
    pub set: String,
    /// Whether the GPU ran the step. If not, `report` is that of an earlier step, or of none.
    pub ran: bool,
    /// Microbatches that were counted.
    pub microbatches: u32,
    /// The decision.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub report: Report,
    /// Norm after the step, of the type of `total_norm`, if it was asked for and the step was not skipped.
    pub norm_after: Option<f64>,
    /// Norm of each tensor, of the type of `total_norm`, unscaled, before clipping, if asked for.
    pub tensor_norms: Option<Vec<TensorNorm>>,
}

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    capacity: usize,
    free: Vec<wgpu::Buffer>,
    pending: VecDeque<Pending>,
    pub next_update: u64,
    lost: u64,
    latest: Option<UpdateReport>,
    inbox: Arc<Mutex<Inbox>>,
}

/// A report on its way.
#[derive(Debug)]
struct Pending {
    update: u64,
    staging: wgpu::Buffer,
    parts: Vec<Part>,
    state_at: u64,
}

/// A report that lacks the state after the update.
#[must_use]
pub(crate) struct Started {
    update: u64,
    staging: wgpu::Buffer,
    state_at: u64,
}

/// Where a step lies in the staging buffer.
#[derive(Debug)]
struct Part {
    name: String,
    tensors: Arc<[Tensor]>,
    microbatches: u32,
    at: u64,
    after_at: Option<u64>,
    norms_at: Option<u64>,
    lost_at: Option<u64>,
}

/// What became of the copies, written by wgpu's callbacks.
#[derive(Debug, Default)]
struct Inbox {
    arrived: HashMap<u64, Arrival>,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
enum Arrival {
    Mapped,
    /// The encoder was dropped, so that the copy will never be made.
    Dropped,
    Failed(String),
}

/// Reports to the inbox even if wgpu drops the callback without calling it.
struct Messenger {
    inbox: Arc<Mutex<Inbox>>,
    update: u64,
    arrival: Arrival,
}

impl Messenger {
    fn deliver(mut self, result: Result<(), wgpu::BufferAsyncError>) {
        self.arrival = match result {
            Ok(()) => Arrival::Mapped,
            Err(error) => Arrival::Failed(error.to_string()),
        };
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        let arrival = std::mem::replace(&mut self.arrival, Arrival::Dropped);
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.arrived.insert(self.update, arrival);
        let wakers = std::mem::take(&mut inbox.wakers);
        drop(inbox);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl GradScaler {
    /// Keeps up to `capacity` reports on their way; 0 (the start) makes none. An update that finds the ring full makes
    /// no report, and is counted as lost: give it as many as there are updates between two looks at
    /// [`GradScaler::poll_report`], plus the submissions in flight.
    #[must_use]
    pub fn with_reports(self, capacity: usize) -> Self {
        self.reports().capacity = capacity;
        self
    }

    /// The next report, in order, each once; `None` if it is not there yet. Never blocks. Since reports come in the order
    /// in which they were recorded, one whose command buffer is held back holds up those behind it.
    ///
    /// # Errors
    /// [`Error::Dropped`] once for an update whose encoder was dropped, so that it will never run; [`Error::Wgpu`] if
    /// the device was lost. Later reports follow.
    pub fn poll_report(&self) -> Result<Option<UpdateReport>, Error> {
        // A lost device shows in what arrived.
        let _ = self.0.context.device().poll(wgpu::PollType::Poll);
        let mut reports = self.reports();
        let Some(update) = reports.pending.front().map(|p| p.update) else { return Ok(None) };
        let arrival = {
            let mut inbox = reports.inbox();
            // What was taken before its message came.
            inbox.arrived.retain(|&other, _| other >= update);
            inbox.arrived.remove(&update)
        };
        let Some(arrival) = arrival else { return Ok(None) };
        let Some(pending) = reports.pending.pop_front() else { return Ok(None) };
        let taken = reports.take(self.0.context.device(), &pending, arrival);
        reports.free.push(pending.staging);
        if let Ok(report) = &taken {
            reports.latest = Some(report.clone());
        }
        taken.map(Some)
    }

    /// The last report that was fetched.
    #[must_use]
    pub fn latest_report(&self) -> Option<UpdateReport> {
        self.reports().latest.clone()
    }

    /// Reports lost so far because the ring was full.
    #[must_use]
    pub fn lost_reports(&self) -> u64 {
        self.reports().lost
    }

    /// The next report; blocks until the GPU is done with everything submitted so far, at most `patience`. `None` if no
    /// report is on its way, or that of an encoder that was not submitted.
    ///
    /// # Errors
    /// As [`GradScaler::poll_report`], and [`Error::Timeout`].
    pub fn wait_report(&self, patience: Duration) -> Result<Option<UpdateReport>, Error> {
        if let Some(report) = self.poll_report()? {
            return Ok(Some(report));
        }
        if self.reports().pending.is_empty() {
            return Ok(None);
        }
        let wait = wgpu::PollType::Wait { submission_index: None, timeout: Some(patience) };
        match self.0.context.device().poll(wait) {
            Err(wgpu::PollError::Timeout) => Err(Error::Timeout { whose: "GradScaler".into(), patience }),
            // A lost device shows in what arrived.
            _ => {
                self.reports().notice_mapped();
                self.poll_report()
            }
        }
    }

    /// The next report as a future. It resolves when a later submission or the engine's own [`wgpu::Device::poll`]
    /// finds the copy done (on the web, the browser does).
    ///
    /// # Errors
    /// The future's output, as [`GradScaler::poll_report`].
    pub fn next_report(&self) -> impl Future<Output = Result<UpdateReport, Error>> + use<'_> {
        std::future::poll_fn(|cx| {
            // Registered first, so that no arrival falls between the look and the wait.
            let reports = self.reports();
            let mut inbox = reports.inbox();
            if !inbox.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                inbox.wakers.push(cx.waker().clone());
            }
            drop(inbox);
            drop(reports);
            match self.poll_report() {
                Ok(Some(report)) => Poll::Ready(Ok(report)),
                Ok(None) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }

    /// Copies what `steps` decided into a free staging buffer. Before the update, which marks the verdicts as seen: a
    /// verdict that bears the mark already is that of an earlier step.
    pub(crate) fn start_report(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        steps: &[Step<Recorded>],
    ) -> Result<Option<Started>, Error> {
        let mut reports = self.reports();
        if reports.capacity == 0 {
            return Ok(None);
        }
        if reports.pending.len() >= reports.capacity {
            reports.next_update += 1;
            reports.lost += 1;
            return Ok(None);
        }
        let (parts, copies, state_at) = lay_out(steps);
        let size = state_at + size_of::<GpuState>() as u64;
        let staging = match reports.free.iter().position(|b| b.size() >= size) {
            Some(i) => reports.free.swap_remove(i),
            None => {
                reports.free.clear();
                self.new_staging(size)?
            }
        };
        let mut at = 0;
        for (source, bytes) in copies {
            encoder.copy_buffer_to_buffer(&source, 0, &staging, at, bytes);
            at += bytes;
        }
        let update = reports.next_update;
        reports.next_update += 1;
        reports.pending.push_back(Pending { update, staging: staging.clone(), parts, state_at });
        Ok(Some(Started { update, staging, state_at }))
    }

    /// Adds the state after the update, and sends the report on its way.
    pub(crate) fn finish_report(&self, encoder: &mut wgpu::CommandEncoder, started: Started) {
        let Started { update, staging, state_at } = started;
        let state_bytes = size_of::<GpuState>() as u64;
        encoder.copy_buffer_to_buffer(&self.0.state, 0, &staging, state_at, state_bytes);
        let inbox = Arc::clone(&self.reports().inbox);
        let messenger = Messenger { inbox, update, arrival: Arrival::Dropped };
        encoder.map_buffer_on_submit(&staging, wgpu::MapMode::Read, .., |result| messenger.deliver(result));
    }

    fn new_staging(&self, size: u64) -> Result<wgpu::Buffer, Error> {
        let device = self.0.context.device();
        guarded(device, "allocating a report", || staging(device, "gradclip reports", size))
    }

    pub(super) fn reports(&self) -> MutexGuard<'_, Reports> {
        self.0.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of a report, the copies that make them, and where they end: there the state comes.
fn lay_out(steps: &[Step<Recorded>]) -> (Vec<Part>, Vec<(wgpu::Buffer, u64)>, u64) {
    let mut copies = Vec::new();
    let mut size = 0;
    let mut copy = |buffer: &wgpu::Buffer, bytes: u64| {
        copies.push((buffer.clone(), bytes));
        let at = size;
        size += bytes;
        at
    };
    let mut parts = Vec::with_capacity(steps.len());
    for step in steps {
        let (also, microbatches) = (step.open().also, step.open().microbatches);
        for set in step.sets() {
            let compiled = set.compiled();
            let extras = &compiled.planned.extras;
            let at = copy(set.report(), set.report().size());
            let after = extras.norm_after.get().filter(|_| also.norm_after);
            let norms = extras.tensor_norms.get().filter(|_| also.tensor_norms);
            let lost = extras.lost.get().filter(|_| also.lost);
            parts.push(Part {
                name: set.name().into(),
                tensors: Arc::clone(set.tensors()),
                microbatches,
                at,
                after_at: after.map(|made| copy(&made.report, VERDICT_BYTES)),
                norms_at: norms.map(|made| copy(&made.clips, made.clips.size())),
                lost_at: lost.map(|made| copy(&made.counts, made.counts.size())),
            });
        }
    }
    (parts, copies, size)
}

impl Reports {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the first report as arrived if its buffer is mapped: the thread whose poll mapped it may be slow to say so.
    fn notice_mapped(&self) {
        let Some(first) = self.pending.front() else { return };
        if first.staging.get_mapped_range(..).is_ok() {
            self.inbox().arrived.entry(first.update).or_insert(Arrival::Mapped);
        }
    }

    fn take(
        &mut self,
        device: &wgpu::Device,
        pending: &Pending,
        arrival: Arrival,
    ) -> Result<UpdateReport, Error> {
        let wgpu_error = |message: String| failed(device, "reading a report", &message);
        match arrival {
            Arrival::Mapped => {}
            Arrival::Dropped => return Err(Error::Dropped { update: pending.update }),
            Arrival::Failed(message) => return Err(wgpu_error(message)),
        }
        let decoded = {
            let view = pending.staging.get_mapped_range(..).map_err(|e| wgpu_error(e.to_string()))?;
            self.decode(pending, &view)
        };
        pending.staging.unmap();
        Ok(decoded)
    }

    fn decode(&self, pending: &Pending, bytes: &[u8]) -> UpdateReport {
        let steps = pending.parts.iter().map(|part| decode_step(part, bytes)).collect();
        let state_at = pending.state_at as usize;
        let state: GpuState =
            bytemuck::pod_read_unaligned(&bytes[state_at..state_at + size_of::<GpuState>()]);
        let sets = pending.parts.iter().map(|part| state_after(part, bytes)).collect();
        let next_update = pending.update + 1;
        let scaler = ScalerState { next_update, sets, ..ScalerState::from_gpu(state) };
        let clip_rate = scaler.clip_rate();
        UpdateReport { update: pending.update, steps, scaler, clip_rate, lost: self.lost }
    }
}

/// What a set remembers after the update, of which the copy was made before.
fn state_after(part: &Part, bytes: &[u8]) -> SetState {
    let bytes = &bytes[part.at as usize..];
    let verdict: Verdict = bytemuck::pod_read_unaligned(&bytes[..size_of::<Verdict>()]);
    let [steps, skipped]: [u32; 2] = bytemuck::pod_read_unaligned(&bytes[STATE_AT as usize..][..8]);
    let counts = verdict.run != verdict.consumed && verdict.halted == 0;
    let (steps, consecutive_skipped) = match (counts, verdict.skip) {
        (false, _) => (steps, skipped),
        (true, 0) => (steps.saturating_add(1), 0),
        (true, _) => (steps, skipped.saturating_add(1)),
    };
    SetState { consecutive_skipped, ..SetState::new(part.name.clone(), steps) }
}

fn decode_step(part: &Part, bytes: &[u8]) -> StepReport {
    let bytes_of_step = &bytes[part.at as usize..];
    let verdict: Verdict = bytemuck::pod_read_unaligned(&bytes_of_step[..size_of::<Verdict>()]);
    let ran = verdict.run != verdict.consumed;
    let mut report = Report::decode(bytes_of_step, &part.tensors);
    let taken = ran && !report.skipped;
    let after = part.after_at.filter(|_| taken).map(|at| {
        let at = at as usize;
        let verdict: Verdict = bytemuck::pod_read_unaligned(&bytes[at..at + size_of::<Verdict>()]);
        verdict.norm().to_f64()
    });
    let measured = ran && !report.bad_scalar && !report.halted;
    let norms = part.norms_at.filter(|_| measured);
    let norms = norms.map(|at| GpuTensorClip::norms(&bytes[at as usize..], &part.tensors));
    report.lost = part.lost_at.filter(|_| taken).map(|at| decode_lost(&bytes[at as usize..], &part.tensors));
    StepReport {
        set: part.name.clone(),
        ran,
        microbatches: part.microbatches,
        report,
        norm_after: after,
        tensor_norms: norms,
    }
}

impl std::fmt::Display for UpdateReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "update {}:", self.update)?;
        for step in &self.steps {
            write!(f, " {}: {};", step.set, step)?;
        }
        write!(
            f,
            " next scale {}, {} skipped ({} in a row), {:.0} % clipped",
            self.scaler.scale,
            self.scaler.skipped,
            self.scaler.consecutive_skipped,
            100.0 * self.clip_rate
        )
    }
}

impl std::fmt::Display for StepReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.ran {
            return f.write_str("did not run on the GPU");
        }
        write!(f, "{}", self.report)?;
        self.norm_after.map_or(Ok(()), |norm| write!(f, ", norm after {norm:.9e}"))
    }
}
