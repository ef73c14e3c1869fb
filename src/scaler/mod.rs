//! The dynamic loss scale, on the GPU.

pub(crate) mod config;
pub(crate) mod order;
pub(crate) mod reports;
mod saved;
pub(crate) mod state;
mod watch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gpu::guard::guarded;
use crate::gpu::make::{filled, group, part, staging};
use crate::gpu::shader::Kernel;
use crate::grad_set::{Ticket, WeakSet};
use crate::{
    Context, Error, GradSet, HysteresisRefill, Members, ScaleMode, ScalerConfig, ScalerState, SetState,
    SkipRule,
};
use order::{Accumulating, Limited, Open, Recorded, Step};
use reports::Reports;
use watch::{STATE_BYTES, Watch};

/// Keeps the loss scale of one or more optimizers, PyTorch's `GradScaler` for wgpu.
///
/// Scale and counters live on the GPU; no call in the training loop reads them back. Each optimizer's gradients are a
/// [`GradSet`]; [`GradScaler::begin`] opens a step of one, and [`GradScaler::update`] closes all that are open.
///
/// ```
/// use gradclip::{Limit, Context, Format, GradScaler, GradSet, ScalerConfig, TensorSlice, wgpu};
/// # use wgpu::util::{BufferInitDescriptor, DeviceExt};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
/// # let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
/// # let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
/// # let page = device.create_buffer_init(&BufferInitDescriptor {
/// #     label: None,
/// #     contents: bytemuck::cast_slice(&[24f32, 32.0]),
/// #     usage: wgpu::BufferUsages::STORAGE,
/// # });
/// let gpu = Context::new(&device, &queue)?;
/// let grads = GradSet::builder("adamw")
///     .tensor("weight", TensorSlice { buffer: &page, offset: 0, len: 2, format: Format::F32 })
///     .build(&gpu)?;
/// let config = ScalerConfig { init_scale: 8.0, ..ScalerConfig::default() };
/// let scaler = GradScaler::new(&gpu, config)?.with_reports(4);
///
/// // One optimizer step. The loss kernel multiplies by `scaler.scale_buffer()`.
/// let mut encoder = device.create_command_encoder(&Default::default());
/// let mut step = scaler.begin(&grads)?;
/// for _ in 0..2 {
///     // ... backward of a microbatch, on the encoder ...
///     step.microbatch();
/// }
/// let step = step.unscale().limit(Limit::norm(1.0)).record(&mut encoder)?;
/// // ... the optimizer's kernel, which does nothing if `grads.verdict()` says skip ...
/// scaler.update(&mut encoder, [step])?;
/// queue.submit([encoder.finish()]);
///
/// // Whenever a log wants it; `poll_report` never blocks.
/// let report = scaler.wait_report(std::time::Duration::from_secs(60))?.expect("it was submitted");
/// assert_eq!(report.steps[0].report.total_norm, Some(5.0));
/// assert_eq!((report.steps[0].microbatches, report.scaler.growth_tracker), (2, 1));
/// # Ok(())
/// # }
/// ```
///
/// A handle: cheap to clone and to store.
#[derive(Debug, Clone)]
pub struct GradScaler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    id: u64,
    config: ScalerConfig,
    state: wgpu::Buffer,
    /// The state, as steps bind it.
    state_group: wgpu::BindGroup,
    pipeline: wgpu::ComputePipeline,
    /// By `first + 2 * last`.
    turns: Vec<wgpu::BindGroup>,
    agreement: Option<Agreement>,
    watch: Watch,
    book: Mutex<Book>,
    reports: Mutex<Reports>,
}

/// All or none.
#[derive(Debug)]
struct Agreement {
    pipeline: wgpu::ComputePipeline,
    /// Hears the first, hears another, tells.
    turns: [wgpu::BindGroup; 3],
}

/// What the host knows.
#[derive(Debug, Default)]
struct Book {
    /// Sets with an open step.
    open: Vec<(Ticket, GradSet)>,
    /// Sets that were ever begun.
    known: Vec<WeakSet>,
    /// States that were loaded for sets that were not begun since.
    loaded: HashMap<String, SetState>,
    /// Sharded steps that were skipped in a row, by the set's number: what every rank knows from the merged ledger.
    sharded: HashMap<u64, u32>,
    /// Set when too many steps were skipped in a row.
    stalled: Option<u32>,
}

/// The twin of `struct Config` in `scale_update.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ConfigUniform {
    growth: [u32; 3],
    backoff: [u32; 3],
    growth_interval: u32,
    hysteresis: u32,
    min_scale: f32,
    max_scale: f32,
    refill_on_finite: u32,
    dynamic: u32,
    most_skipped: u32,
}

impl GradScaler {
    /// A scaler that starts at `config.init_scale`.
    ///
    /// # Errors
    /// [`Error::Config`] for a field outside its domain, [`Error::Wgpu`] if wgpu refuses a buffer.
    pub fn new(context: &Context, config: ScalerConfig) -> Result<Self, Error> {
        config.check()?;
        let shared = &context.shared;
        let pipeline = shared.pipeline(Kernel::ScaleUpdate)?;
        let uniform = ConfigUniform {
            growth: split_f64(config.growth_factor),
            backoff: split_f64(config.backoff_factor),
            growth_interval: config.growth_interval,
            hysteresis: config.hysteresis,
            min_scale: config.min_scale,
            max_scale: config.max_scale,
            refill_on_finite: u32::from(config.refill == HysteresisRefill::OnFiniteStep),
            dynamic: u32::from(config.mode == ScaleMode::Dynamic),
            most_skipped: config.max_consecutive_skipped.unwrap_or(0),
        };
        let agree = match config.skip {
            SkipRule::Each => None,
            SkipRule::All => Some(shared.pipeline(Kernel::Agree)?),
        };
        let what = "creating a GradScaler";
        let (state, state_group, turns, agreement, watch) = guarded(&shared.device, what, || {
            use wgpu::BufferUsages as Usage;
            let usage = Usage::STORAGE | Usage::UNIFORM | Usage::COPY_SRC | Usage::COPY_DST;
            let start = ScalerState::new(&config).to_gpu();
            let state = filled(shared, "gradclip scaler", usage, bytemuck::bytes_of(&start));
            let config =
                filled(shared, "gradclip scaler config", Usage::UNIFORM, bytemuck::bytes_of(&uniform));
            let turn = |words: [u32; 4]| {
                filled(shared, "gradclip turn", Usage::UNIFORM, bytemuck::cast_slice(&words))
            };
            let turns = (0..4u32)
                .map(|number| {
                    let turn = turn([number & 1, number >> 1, 0, 0]);
                    let resources = [&state, &config, &turn].map(wgpu::Buffer::as_entire_binding);
                    group(shared, &shared.layouts.scale_update, &resources)
                })
                .collect();
            let agreement = agree.map(|pipeline| {
                let shared_word = filled(shared, "gradclip agreement", Usage::STORAGE, &[0; 16]);
                let turns = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]].map(|words| {
                    let turn = turn(words);
                    let resources = [&shared_word, &turn].map(wgpu::Buffer::as_entire_binding);
                    group(shared, &shared.layouts.agree, &resources)
                });
                Agreement { pipeline, turns }
            });
            let state_group = group(shared, &shared.layouts.scaler, &[part(&state, 0, 16)]);
            let watch = Watch::new(|| staging(&shared.device, "gradclip watch", STATE_BYTES));
            (state, state_group, turns, agreement, watch)
        })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Self(Arc::new(Inner {
            context: context.clone(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            config,
            state,
            state_group,
            pipeline,
            turns,
            agreement,
            watch,
            book: Mutex::default(),
            reports: Mutex::default(),
        })))
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ScalerConfig {
        &self.0.config
    }

    /// The scale as the first word (f32) of a buffer, for the engine's loss kernel: bind it as uniform or read-only
    /// storage. 16 bytes are bound; the other words are the scaler's. The buffer stays the same.
    #[must_use]
    pub fn scale_buffer(&self) -> wgpu::BufferBinding<'_> {
        wgpu::BufferBinding { buffer: &self.0.state, offset: 0, size: wgpu::BufferSize::new(16) }
    }

    /// Opens a step of one optimizer, or of a [`Joint`](crate::Joint) of several under one norm: from here to
    /// [`GradScaler::update`] the scale stands still, so that every microbatch's backward and the unscale see the same one.
    /// Begin all optimizers of the scaler before the first backward: the scaler cannot wait for one that it has not heard
    /// of. Dropping what this returns gives the step up, and so does [`GradScaler::give_up`] by name.
    ///
    /// # Errors
    /// [`Error::StepOpen`] if the set has an open step, [`Error::OtherScaler`] if it has one under another scaler,
    /// [`Error::OtherContext`] if set and scaler belong to different contexts, [`Error::SharedBytes`] if it lies where
    /// another open set does, [`Error::SameName`] if another set of the scaler has its name, [`Error::TooManySkipped`] if
    /// more steps in a row were skipped than the configuration allows, as far as the host has heard: this never waits.
    pub fn begin(&self, members: impl Into<Members>) -> Result<Step<Accumulating>, Error> {
        let members = members.into();
        for set in members.sets() {
            if !Arc::ptr_eq(&self.0.context.shared, &set.context().shared) {
                return Err(Error::OtherContext { set: set.name().into() });
            }
        }
        // Calls what wgpu has to say, and waits for nothing.
        let _ = self.0.context.device().poll(wgpu::PollType::Poll);
        let heard = self.0.watch.heard();
        let mut book = self.book();
        book.stalled = heard.or(book.stalled);
        if let Some(skipped) = book.stalled {
            return Err(Error::TooManySkipped { skipped });
        }
        let ticket = Ticket::new(self.0.id);
        let mut opened = Vec::with_capacity(members.sets().len());
        for set in members.sets() {
            if let Err(error) = self.open(&mut book, set, ticket) {
                opened.iter().for_each(|set: &&GradSet| set.close(ticket));
                book.open.retain(|(other, _)| *other != ticket);
                return Err(error);
            }
            opened.push(set);
        }
        drop(book);
        Ok(Step::new(Open::new(self.clone(), members, ticket)))
    }

    fn open(&self, book: &mut Book, set: &GradSet, ticket: Ticket) -> Result<(), Error> {
        if set.ticket().is_none() {
            for (_, other) in &book.open {
                if !(set.shares() && other.shares()) {
                    other.check_apart(set)?;
                }
            }
            book.known.retain(|known| known.upgrade().is_some());
            let known: Vec<GradSet> = book.known.iter().filter_map(WeakSet::upgrade).collect();
            if known.iter().any(|other| !other.same(set) && other.name() == set.name()) {
                return Err(Error::SameName { set: set.name().into() });
            }
            if !known.iter().any(|other| other.same(set)) {
                book.known.push(set.downgrade());
            }
        }
        set.open_for(ticket)?;
        if let Some(state) = book.loaded.get(set.name()) {
            if let Err(error) = set.put_state(state) {
                set.close(ticket);
                return Err(error);
            }
            book.loaded.remove(set.name());
        }
        book.open.push((ticket, set.clone()));
        Ok(())
    }

    /// Gives up the open step of a set by its name, for a guard that was leaked or lost; whether there was one. What still
    /// holds the guard gets [`Error::GivenUp`].
    pub fn give_up(&self, set: &str) -> bool {
        let ticket = self.book().open.iter().find(|(_, open)| open.name() == set).map(|(ticket, _)| *ticket);
        ticket.is_some_and(|ticket| {
            self.close(ticket);
            true
        })
    }

    /// Records steps of several optimizers together: all are read, then, under [`SkipRule::All`], all are skipped if one is,
    /// then all are written. On the GPU; nothing is read back.
    ///
    /// # Errors
    /// As [`Step::record`], for any of them; [`Error::OtherScaler`] for a step begun under another scaler. Nothing is
    /// recorded then, and all are given up.
    pub fn record_all<K>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        steps: impl IntoIterator<Item = Step<Limited<K>>>,
    ) -> Result<Vec<Step<Recorded>>, Error> {
        order::record_all(self, encoder, steps.into_iter().collect(), true)
    }

    /// [`GradScaler::record_all`] without the writes, as [`GradSet::record_deferred`].
    ///
    /// # Errors
    /// As [`GradScaler::record_all`].
    pub fn record_all_deferred(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        steps: impl IntoIterator<Item = Step<Limited>>,
    ) -> Result<Vec<Step<Recorded>>, Error> {
        order::record_all(self, encoder, steps.into_iter().collect(), false)
    }

    /// Records the update of the scale, from the verdicts of all optimizers: once per optimizer step, after the last
    /// of them was recorded, on the same encoder or one that is submitted later. Every set with an open step has to be
    /// among `steps`.
    ///
    /// A step whose commands never ran on the GPU does not count; if none ran, the scale does not move. (The GPU tells by
    /// the verdict: if a step of the set ran before and was never updated from, its verdict counts in its place.)
    ///
    /// # Errors
    /// [`Error::NoSteps`] without steps, [`Error::OtherScaler`] for a step begun under another scaler,
    /// [`Error::GivenUp`] for one that was given up by name, [`Error::LeftOut`] if an optimizer with an open step is
    /// missing, [`Error::Wgpu`] if wgpu refuses the buffer of a report. The update is not recorded then, and `steps` are
    /// given up.
    pub fn update(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        steps: impl IntoIterator<Item = Step<Recorded>>,
    ) -> Result<(), Error> {
        let steps: Vec<Step<Recorded>> = steps.into_iter().collect();
        if steps.is_empty() {
            return Err(Error::NoSteps);
        }
        if let Some(step) = steps.iter().find(|s| !s.is_of(self)) {
            return Err(Error::OtherScaler { set: step.name() });
        }
        steps.iter().try_for_each(|step| step.open().check())?;
        let missing = self
            .book()
            .open
            .iter()
            .find(|(ticket, _)| !steps.iter().any(|s| s.open().ticket == *ticket))
            .map(|(_, set)| set.name().to_owned());
        if let Some(set) = missing {
            return Err(Error::LeftOut { set });
        }
        let report = self.start_report(encoder, &steps)?;
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("gradclip scale_update"),
            timestamp_writes: None,
        });
        pass.set_pipeline(&self.0.pipeline);
        let last = steps.iter().map(|step| step.sets().len()).sum::<usize>() - 1;
        for (i, set) in steps.iter().flat_map(Step::sets).enumerate() {
            let turn = usize::from(i == 0) + 2 * usize::from(i == last);
            pass.set_bind_group(0, &self.0.turns[turn], &[]);
            pass.set_bind_group(1, set.head_group(), &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        drop(pass);
        if self.0.config.max_consecutive_skipped.is_some() {
            self.0.watch.send(encoder, &self.0.state);
        }
        if let Some(report) = report {
            self.finish_report(encoder, report);
        }
        // Dropping the steps closes them.
        Ok(())
    }

    /// Called when a step guard is dropped or given up.
    fn close(&self, ticket: Ticket) {
        let mut closed = Vec::new();
        self.book().open.retain(|(other, set)| {
            let open = *other != ticket;
            if !open {
                closed.push(set.clone());
            }
            open
        });
        closed.iter().for_each(|set| set.close(ticket));
    }

    /// Counts a sharded step, of which the host knows whether it is skipped.
    fn count_sharded(&self, set: &GradSet, skipped: bool) {
        let Some(most) = self.0.config.max_consecutive_skipped else { return };
        let mut book = self.book();
        let in_a_row = book.sharded.entry(set.id()).or_insert(0);
        *in_a_row = if skipped { in_a_row.saturating_add(1) } else { 0 };
        if *in_a_row >= most {
            book.stalled = Some(*in_a_row);
        }
    }

    /// All of the state, as the GPU has it.
    pub(crate) fn state_buffer(&self) -> &wgpu::Buffer {
        &self.0.state
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A normal f64 as 53-bit significand (high word first) and power of two.
fn split_f64(value: f64) -> [u32; 3] {
    let bits = value.to_bits();
    let significand = bits & ((1 << 52) - 1) | 1 << 52;
    let exponent = (bits >> 52) as i32 - 1075;
    [(significand >> 32) as u32, significand as u32, exponent.cast_unsigned()]
}
