//! A step in two halves, for gradients that lie on several devices: measure, merge the ledgers of all, and finish.

use std::future::Future;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::compiled::{Extra, Planned};
use super::params::Told;
use super::record::{Also, Ready, begin_pass};
use super::{GradSet, Prepare};
use crate::exact::norm_partials::Ledger as Sums;
use crate::gpu::context::Shared;
use crate::gpu::guard::guarded;
use crate::gpu::make::{filled, numbered};
use crate::gpu::readback::{PATIENCE, Pending, start_copy};
use crate::gpu::shader::Kernel;
use crate::ledger::{Part, Terms};
use crate::limit::AnyLimit;
use crate::{Error, Ledger, Limit, Scalar, Unscale};

/// The twin of `struct Shard` in `shard.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct Shard {
    low: [u32; 4],
    high: [u32; 4],
    /// Highest word first.
    f16: [u32; 4],
    count_low: [u32; 4],
    count_high: [u32; 4],
    ticket: u32,
    scale: f32,
    top: u32,
    overflow: u32,
    largest: [u32; 4],
}

/// The kernels of both halves.
#[derive(Debug)]
pub(crate) struct ShardKernels {
    pub output: wgpu::Buffer,
    first: Extra,
    merged: wgpu::ComputePipeline,
}

/// Where a set stands between the halves.
#[derive(Debug, Default)]
pub(crate) struct Sharding {
    /// First halves recorded, modulo 2^32 and never 0 after the first: the ticket of the latest.
    recorded: u32,
    /// What the latest first half was told; `None` once it is used up or outdated.
    measured: Option<Half>,
    /// The ledger that was read of it.
    own: Option<Ledger>,
}

/// What the first half was told, which the second repeats.
#[derive(Debug, Clone)]
pub(crate) struct Half {
    pub unscale: Unscale,
    pub limit: AnyLimit,
    pub in_place: bool,
}

impl ShardKernels {
    pub fn new(shared: &Shared, planned: &Planned) -> Result<Self, Error> {
        let pipeline = shared.pipeline(Kernel::ShardLedger)?;
        let merged = shared.pipeline(Kernel::NormMerged)?;
        guarded(&shared.device, "allocating a ledger", || {
            let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
            let output = filled(shared, "gradclip ledger", usage, &[0; size_of::<Shard>()]);
            let group = shard_group(shared, planned, output.as_entire_binding());
            Self { output, first: Extra { pipeline, group, groups: (1, 1) }, merged }
        })
    }
}

/// What shard_ledger binds, with a place of any set for the result.
pub(crate) fn shard_group(
    shared: &Shared,
    planned: &Planned,
    output: wgpu::BindingResource<'_>,
) -> wgpu::BindGroup {
    let partials = planned.scratch.partials.as_entire_binding();
    let resources = [(0, partials), (1, output), (3, planned.scratch.finish())];
    numbered(shared, &shared.layouts.shard_ledger, &resources)
}

impl Half {
    /// Checks what a sharded step can be told.
    pub fn terms(&self, set: &GradSet) -> Result<Terms, Error> {
        let refuse = |why: &str| Error::ShardLimit { set: set.0.name.clone(), why: why.into() };
        let words = "ranks take numbers of the host, the same on all, and no words of a buffer";
        let value = |number: &Scalar| number.value().ok_or_else(|| refuse(words));
        let terms = Terms::new(&self.limit, value(&self.unscale.divisor)?, self.in_place);
        let terms = terms.map_err(|why| refuse(&why))?;
        if self.in_place {
            terms.check_formats(&set.0.name, set.0.tensors.iter().map(|t| t.format))?;
        }
        Ok(terms)
    }
}

impl GradSet {
    /// Records the first half of a step over gradients of which this set holds a part: it reads them and adds up a
    /// [`Ledger`]. Then submit, [read the ledger](GradSet::read_ledger), add up those of all parts, and
    /// [`GradSet::record_merged`] records the rest. All parts need the same `scale` and `limit`, in numbers of the host; what
    /// differs is noticed. Prepare it with [`Prepare::Ledger`].
    ///
    /// The gradients must not change in between. Every element counts once: where several ranks hold a copy of a tensor,
    /// put it into a set of its own, add the ledger of that set on one rank only, and finish it on every rank with the
    /// merged one. Several sets under one norm work the same way.
    ///
    /// # Errors
    /// [`Error::ShardLimit`] for a Linf norm, for what is no limit of one norm, and for a `max_norm` from 65504 on if the
    /// set holds f16 and from 2^127 on otherwise (infinity, for no limit, is fine); [`Error::NotPrepared`]; else as
    /// [`GradSet::record`].
    pub fn record_ledger(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit>,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        let half = Half { unscale: scale.into(), limit: limit.into().any(), in_place: true };
        self.record_first_half(encoder, half, None)
    }

    /// [`GradSet::record_ledger`] of a step that writes nothing, as [`GradSet::record_deferred`].
    ///
    /// # Errors
    /// As [`GradSet::record_ledger`], but for the `max_norm` of formats that nobody writes.
    pub fn record_ledger_deferred(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit>,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        let half = Half { unscale: scale.into(), limit: limit.into().any(), in_place: false };
        self.record_first_half(encoder, half, None)
    }

    /// The ledger of the latest [`GradSet::record_ledger`]. Submit its encoder first. Blocks until the GPU is done with
    /// everything submitted so far, at most a minute.
    ///
    /// # Errors
    /// [`Error::NoLedger`] if none was recorded, or the set has had another step or a rebind since; [`Error::NotRun`] if it
    /// was not submitted; [`Error::Timeout`]; [`Error::DeviceLost`].
    pub fn read_ledger(&self) -> Result<Ledger, Error> {
        self.read_ledger_timeout(PATIENCE)
    }

    /// [`GradSet::read_ledger`] with a limit of its own on the time to wait.
    ///
    /// # Errors
    /// As [`GradSet::read_ledger`].
    pub fn read_ledger_timeout(&self, patience: Duration) -> Result<Ledger, Error> {
        let (pending, recorded) = self.start_ledger()?;
        self.finish_ledger(&pending.wait(patience)?, recorded)
    }

    /// [`GradSet::read_ledger`] without blocking: the future resolves when the engine's own [`wgpu::Device::poll`] or
    /// later submissions find the copy done.
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_ledger`] but for the timeout.
    pub fn read_ledger_async(&self) -> impl Future<Output = Result<Ledger, Error>> + Send + use<> {
        let (set, pending) = (self.clone(), self.start_ledger());
        async move {
            let (pending, recorded) = pending?;
            set.finish_ledger(&pending.bytes().await?, recorded)
        }
    }

    /// Records the second half: decide from `merged`, the ledger of all parts, and scale this part in place, or not, as the
    /// first half was told. Its verdict and its report are those of the whole, but what a report says of NaN and infinity by
    /// tensor is about this part.
    ///
    /// # Errors
    /// [`Error::NoLedger`] if the set's own ledger was not read first, or is used up; [`Error::Ledger`] if `merged` cannot
    /// contain it (that it can does not prove that it does: see [`Ledger::complete`]); [`Error::StepOpen`] and
    /// [`Error::Wgpu`] as [`GradSet::record`]. Nothing is recorded then, and the right ledger can still be given.
    pub fn record_merged(&self, encoder: &mut wgpu::CommandEncoder, merged: &Ledger) -> Result<(), Error> {
        self.refuse_open()?;
        self.record_second_half(encoder, merged, None).map(drop)
    }

    pub(crate) fn record_first_half(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        half: Half,
        scaler: Option<&wgpu::BindGroup>,
    ) -> Result<(), Error> {
        half.terms(self)?;
        let mut sharding = self.sharding();
        // A new ledger buffer holds the ticket 0.
        let ticket = sharding.recorded.wrapping_add(1).max(1);
        let compiled = self.compiled();
        let kernels = compiled.planned.extras.ledger.get().ok_or_else(|| Prepare::Ledger.missing(self))?;
        let told = Told { unscale: &half.unscale, limit: &half.limit, scaler, in_place: half.in_place };
        told.check()?;
        let step = Ready::with(self, told, Also::default(), told.uniform().with_ticket(ticket))?;
        let mut pass = begin_pass(encoder, "gradclip ledger");
        step.record_partials(&mut pass);
        step.record_extra(&mut pass, &kernels.first);
        step.release(&pass);
        drop(pass);
        sharding.recorded = ticket;
        sharding.measured = Some(half);
        sharding.own = None;
        Ok(())
    }

    /// Whether the step is skipped, too, which every part knows from the ledger.
    pub(crate) fn record_second_half(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        merged: &Ledger,
        scaler: Option<&wgpu::BindGroup>,
    ) -> Result<bool, Error> {
        let half = {
            let sharding = self.sharding();
            let no_ledger = || Error::NoLedger { set: self.0.name.clone() };
            merged.check_holds(sharding.own.as_ref().ok_or_else(no_ledger)?)?;
            sharding.measured.clone().ok_or_else(no_ledger)?
        };
        let compiled = self.compiled();
        let kernels = compiled.planned.extras.ledger.get().ok_or_else(|| Prepare::Ledger.missing(self))?;
        let told = Told { unscale: &half.unscale, limit: &half.limit, scaler, in_place: half.in_place };
        let uniform = told.uniform().with_merged(merged);
        let skipped = merged.skips(&half.terms(self)?);
        let step = Ready::with(self, told, Also::default(), uniform)?;
        let mut pass = begin_pass(encoder, "gradclip merged");
        step.record_decision(&mut pass, &kernels.merged, &compiled.planned.norm_finish);
        step.record_writes(&mut pass);
        // Forgets the ledger too.
        step.done(&pass);
        Ok(skipped)
    }

    /// Between the halves nothing else may happen to the gradients or the partials.
    pub(crate) fn forget_ledger(&self) {
        let mut sharding = self.sharding();
        sharding.measured = None;
        sharding.own = None;
    }

    fn start_ledger(&self) -> Result<(Pending, u32), Error> {
        let no_ledger = || Error::NoLedger { set: self.0.name.clone() };
        let recorded = {
            let sharding = self.sharding();
            sharding.measured.as_ref().ok_or_else(no_ledger)?;
            sharding.recorded
        };
        let compiled = self.compiled();
        let kernels = compiled.planned.extras.ledger.get().ok_or_else(no_ledger)?;
        let whose = format!("set \"{}\"", self.0.name);
        Ok((start_copy(&self.0.context, &whose, &kernels.output)?, recorded))
    }

    fn finish_ledger(&self, bytes: &[u8], recorded: u32) -> Result<Ledger, Error> {
        let shard: Shard = bytemuck::pod_read_unaligned(&bytes[..size_of::<Shard>()]);
        let mut sharding = self.sharding();
        let no_ledger = || Error::NoLedger { set: self.0.name.clone() };
        let half = sharding.measured.as_ref().ok_or_else(no_ledger)?;
        if recorded != sharding.recorded {
            return Err(no_ledger());
        }
        if shard.ticket != recorded {
            return Err(Error::NotRun { set: self.0.name.clone() });
        }
        let ledger = shard.ledger(half.terms(self)?, self.elements())?;
        sharding.own = Some(ledger.clone());
        Ok(ledger)
    }

    fn sharding(&self) -> MutexGuard<'_, Sharding> {
        self.0.sharding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn ledger(&self, terms: Terms, elements: u64) -> Result<Ledger, Error> {
        let wide = |low: [u32; 4], high: [u32; 4]| {
            [0, 1, 2, 3].map(|i| u64::from(low[i]) | u64::from(high[i]) << 32)
        };
        let digits = wide(self.low, self.high);
        let [nan, pos_inf, neg_inf, _] = wide(self.count_low, self.count_high);
        let mut sums = Sums::default();
        // Cell c has index c + 3, and the window is the cells from `top` down.
        let window = sums.cells.iter_mut().skip(self.top as usize).take(4);
        for (sum, digits) in window.zip(digits.into_iter().rev()) {
            *sum = digits;
        }
        sums.f16 = self.f16.iter().fold(0, |sum, &word| sum << 32 | u128::from(word));
        Ok(Ledger::of_part(Part {
            terms,
            scale: crate::LossScale::new(self.scale)?,
            elements,
            nonfinite: [nan, pos_inf, neg_inf],
            overflow: self.overflow != 0,
            sums,
        }))
    }
}
