//! The dynamic loss scale, on the GPU.

pub(crate) mod config;
pub(crate) mod order;
pub(crate) mod reports;
pub(crate) mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gpu::context::{filled, group, guarded};
use crate::gpu::shader::Kernel;
use crate::scaler::order::{Accumulating, Recorded};
use crate::scaler::reports::Reports;
use crate::scaler::state::GpuState;
use crate::{Context, Error, GradSet, HysteresisRefill, ScaleMode, ScalerConfig, ScalerState};

const STATE_BYTES: u64 = size_of::<GpuState>() as u64;

/// Keeps the loss scale of one or more optimizers, PyTorch's `GradScaler` for wgpu.
///
/// Scale and counters live on the GPU; no call in the training loop reads them back. Each optimizer's gradients are a
/// [`GradSet`]; [`GradScaler::begin`] opens a step of one, and [`GradScaler::update`] closes all that are open.
///
/// ```
/// use gradclip::{ClipNorm, Context, Format, GradScaler, GradSet, ScalerConfig, TensorSlice, wgpu};
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
/// let step = step.unscale().clip_grad_norm(ClipNorm::new(1.0)?).record(&mut encoder)?;
/// // ... the optimizer's kernel, which does nothing if `grads.verdict()` says skip ...
/// scaler.update(&mut encoder, [step])?;
/// queue.submit([encoder.finish()]);
///
/// // Whenever a log wants it; `poll_report` never blocks.
/// let report = scaler.wait_report(std::time::Duration::from_secs(60))?.expect("it was submitted");
/// assert_eq!(report.steps[0].report.total_norm, 5.0);
/// assert_eq!((report.steps[0].microbatches, report.scaler.growth_tracker), (2, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GradScaler {
    pub(crate) context: Context,
    pub(crate) id: u64,
    pub(crate) config: ScalerConfig,
    pub(crate) state: wgpu::Buffer,
    pipeline: wgpu::ComputePipeline,
    /// By `first + 2 * last`.
    turns: Vec<wgpu::BindGroup>,
    book: Mutex<Book>,
    pub(crate) reports: Mutex<Reports>,
}

/// What the host knows.
#[derive(Debug, Default)]
struct Book {
    /// Sets with an open step: id and name.
    open: Vec<(u64, String)>,
    /// Set when a report showed too many skipped steps.
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
        };
        let (state, turns) = guarded(&shared.device, "creating a GradScaler", || {
            use wgpu::BufferUsages as Usage;
            let usage = Usage::STORAGE | Usage::UNIFORM | Usage::COPY_SRC | Usage::COPY_DST;
            let start = ScalerState::new(&config).to_gpu();
            let state = filled(shared, "gradclip scaler", usage, bytemuck::bytes_of(&start));
            let config =
                filled(shared, "gradclip scaler config", Usage::UNIFORM, bytemuck::bytes_of(&uniform));
            let turns = (0..4u32)
                .map(|turn| {
                    let turn = [turn & 1, turn >> 1, 0, 0];
                    let turn = filled(shared, "gradclip turn", Usage::UNIFORM, bytemuck::cast_slice(&turn));
                    let resources = [&state, &config, &turn].map(wgpu::Buffer::as_entire_binding);
                    group(shared, &shared.layouts.scale_update, &resources)
                })
                .collect();
            (state, turns)
        })?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Self {
            context: context.clone(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            config,
            state,
            pipeline,
            turns,
            book: Mutex::default(),
            reports: Mutex::default(),
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ScalerConfig {
        &self.config
    }

    /// The scale as the first word (f32) of a buffer, for the engine's loss kernel: bind it as uniform or read-only
    /// storage. 16 bytes are bound; the other words are the scaler's. The buffer stays the same.
    #[must_use]
    pub fn scale_buffer(&self) -> wgpu::BufferBinding<'_> {
        wgpu::BufferBinding { buffer: &self.state, offset: 0, size: wgpu::BufferSize::new(16) }
    }

    /// Opens a step of one optimizer: from here to [`GradScaler::update`] the scale stands still, so that every
    /// microbatch's backward and the unscale see the same one. Begin all optimizers of the scaler before the first
    /// backward: the scaler cannot wait for one that it has not heard of. Dropping what this returns gives the step up.
    ///
    /// # Errors
    /// [`Error::StepOpen`] if the set has an open step, [`Error::OtherScaler`] if it has one under another scaler,
    /// [`Error::OtherContext`] if set and scaler belong to different contexts, [`Error::TooManySkipped`] if a report
    /// showed more skipped steps in a row than the configuration allows.
    pub fn begin<'a>(&'a self, set: &'a GradSet) -> Result<Accumulating<'a>, Error> {
        if !std::sync::Arc::ptr_eq(&self.context.shared, &set.context.shared) {
            return Err(Error::OtherContext { set: set.name.clone() });
        }
        let mut book = self.book();
        if let Some(skipped) = book.stalled {
            return Err(Error::TooManySkipped { skipped });
        }
        match set.open_under.compare_exchange(0, self.id, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {}
            Err(id) if id == self.id => return Err(Error::StepOpen { set: set.name.clone() }),
            Err(_) => return Err(Error::OtherScaler { set: set.name.clone() }),
        }
        book.open.push((set.id, set.name.clone()));
        Ok(Accumulating::new(self, set))
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
    /// [`Error::LeftOut`] if an optimizer with an open step is missing, [`Error::Wgpu`] if wgpu refuses the buffer of a
    /// report. The update is not recorded then, and `steps` are given up.
    pub fn update<'a>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        steps: impl IntoIterator<Item = Recorded<'a>>,
    ) -> Result<(), Error> {
        let steps: Vec<Recorded<'a>> = steps.into_iter().collect();
        if steps.is_empty() {
            return Err(Error::NoSteps);
        }
        if let Some(step) = steps.iter().find(|s| s.scaler().id != self.id) {
            return Err(Error::OtherScaler { set: step.set().name.clone() });
        }
        let missing = self
            .book()
            .open
            .iter()
            .find(|(id, _)| !steps.iter().any(|s| s.set().id == *id))
            .map(|(_, name)| name.clone());
        if let Some(set) = missing {
            return Err(Error::LeftOut { set });
        }
        let report = self.start_report(encoder, &steps)?;
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("gradclip scale_update"),
            timestamp_writes: None,
        });
        pass.set_pipeline(&self.pipeline);
        for (i, step) in steps.iter().enumerate() {
            let turn = usize::from(i == 0) + 2 * usize::from(i + 1 == steps.len());
            pass.set_bind_group(0, &self.turns[turn], &[]);
            pass.set_bind_group(1, &step.set().verdict_group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        drop(pass);
        if let Some(report) = report {
            self.finish_report(encoder, report);
        }
        // Dropping the steps closes them.
        Ok(())
    }

    /// Lets training go on after [`Error::TooManySkipped`].
    pub fn resume(&self) {
        self.book().stalled = None;
    }

    /// The state, read from the GPU after everything submitted so far. Blocks: for checkpoints.
    ///
    /// # Errors
    /// [`Error::Wgpu`] if the device was lost, [`Error::Timeout`] after a minute.
    pub fn state_dict(&self) -> Result<ScalerState, Error> {
        let bytes = crate::gpu::readback::read_buffer(&self.context, "GradScaler", &self.state, STATE_BYTES)?;
        Ok(ScalerState::from_gpu(bytemuck::pod_read_unaligned(&bytes)))
    }

    /// Goes on from a saved state, bit for bit. It reaches the GPU with the next submission, before its commands.
    ///
    /// # Errors
    /// [`Error::State`] if the state is of another version or contradicts itself or the configuration,
    /// [`Error::LeftOut`] while a step is open, [`Error::Wgpu`] if wgpu has no memory left to send it. The scaler then
    /// stays as it was.
    pub fn load_state_dict(&self, state: &ScalerState) -> Result<(), Error> {
        state.check(&self.config)?;
        let mut book = self.book();
        if let Some((_, name)) = book.open.first() {
            return Err(Error::LeftOut { set: name.clone() });
        }
        guarded(self.context.device(), "loading the scaler's state", || {
            self.context.queue().write_buffer(&self.state, 0, bytemuck::bytes_of(&state.to_gpu()));
        })?;
        book.stalled = None;
        Ok(())
    }

    /// Called when a step guard is dropped.
    pub(crate) fn close(&self, set: &GradSet) {
        self.book().open.retain(|(id, _)| *id != set.id);
        // A half of a step that was given up is not for the next.
        set.forget_ledger();
        set.open_under.store(0, Ordering::Release);
    }

    /// Called when a report shows skipped steps in a row.
    pub(crate) fn saw_skipped(&self, in_a_row: u32) {
        if self.config.max_consecutive_skipped.is_some_and(|most| in_a_row >= most) {
            self.book().stalled = Some(in_a_row);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A normal f64 as 53-bit significand (high word first) and power of two.
fn split_f64(value: f64) -> [u32; 3] {
    let bits = value.to_bits();
    let significand = bits & ((1 << 52) - 1) | 1 << 52;
    let exponent = (bits >> 52) as i32 - 1075;
    [(significand >> 32) as u32, significand as u32, exponent.cast_unsigned()]
}
