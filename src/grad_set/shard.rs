//! A step in two halves, for gradients that lie on several devices: measure, merge the ledgers of all, and finish.

use std::future::Future;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use crate::clip::Clip;
use crate::exact::norm_partials::Ledger as Sums;
use crate::gpu::readback::PATIENCE;
use crate::gpu::shader::Kernel;
use crate::grad_set::params::ScaleSource;
use crate::ledger::{Part, check_clip};
use crate::{ClipNorm, Error, GradSet, Ledger, LossScale};

/// The twin of `struct Shard` in `shard_ledger.wgsl`.
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
}

/// Where a set stands between the halves.
#[derive(Debug, Default)]
pub(crate) struct Sharding {
    /// First halves recorded, modulo 2^32 and never 0 after the first: the ticket of the latest.
    recorded: u32,
    /// What the latest first half was told; `None` once it is used up or outdated.
    measured: Option<Measured>,
    /// The ledger that was read of it.
    own: Option<Ledger>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    clip: Option<ClipNorm>,
    skip_above: Option<f32>,
}

impl GradSet {
    /// Records the first half of a step over gradients of which this set holds a part: it reads them and adds up a
    /// [`Ledger`]. Then submit, [read the ledger](GradSet::read_ledger), add up those of all parts, and
    /// [`GradSet::record_merged`] records the rest. All parts need the same `scale` and `clip`; what differs is noticed.
    ///
    /// The gradients must not change in between. Every element counts once: where several ranks hold a copy of a tensor,
    /// put it into a set of its own, add the ledger of that set on one rank only, and finish it on every rank with the
    /// merged one. Several sets under one norm work the same way.
    ///
    /// # Errors
    /// [`Error::ShardLimit`] for a Linf norm, and for a `max_norm` from 65504 on if the set holds f16 and from 2^127 on
    /// otherwise (infinity, for no limit, is fine); else as [`GradSet::record`].
    pub fn record_ledger(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: LossScale,
        clip: Option<ClipNorm>,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        self.record_first_half(encoder, ScaleSource::Value(scale), clip, None)
    }

    /// The ledger of the latest [`GradSet::record_ledger`]. Submit its encoder first. Blocks until the GPU is done with
    /// everything submitted so far, at most a minute.
    ///
    /// # Errors
    /// [`Error::NoLedger`] if none was recorded, or the set has had another step or a rebind since; [`Error::NotRun`] if it
    /// was not submitted; [`Error::Timeout`]; [`Error::Wgpu`] if the device was lost.
    pub fn read_ledger(&self) -> Result<Ledger, Error> {
        self.read_ledger_timeout(PATIENCE)
    }

    /// [`GradSet::read_ledger`] with a limit of its own on the time to wait.
    ///
    /// # Errors
    /// As [`GradSet::read_ledger`].
    pub fn read_ledger_timeout(&self, patience: Duration) -> Result<Ledger, Error> {
        let (pending, recorded) = self.start_ledger()?;
        pending.wait(&self.context, patience)?;
        self.finish_ledger(&pollster::block_on(pending.bytes())?, recorded)
    }

    /// [`GradSet::read_ledger`] without blocking: the future resolves when the engine's own [`wgpu::Device::poll`] or
    /// later submissions find the copy done.
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_ledger`] but for the timeout.
    pub fn read_ledger_async(&self) -> impl Future<Output = Result<Ledger, Error>> + use<'_> {
        let pending = self.start_ledger();
        async move {
            let (pending, recorded) = pending?;
            self.finish_ledger(&pending.bytes().await?, recorded)
        }
    }

    /// Records the second half: decide from `merged`, the ledger of all parts, and scale this part in place. Its verdict
    /// and its report are those of the whole, but what a report says of NaN and infinity by tensor is about this part.
    ///
    /// # Errors
    /// [`Error::NoLedger`] if the set's own ledger was not read first, or is used up; [`Error::Ledger`] if `merged` cannot
    /// contain it (that it can does not prove that it does: see [`Ledger::complete`]); [`Error::StepOpen`] and
    /// [`Error::Wgpu`] as [`GradSet::record`]. Nothing is recorded then, and the right ledger can still be given.
    pub fn record_merged(&self, encoder: &mut wgpu::CommandEncoder, merged: &Ledger) -> Result<(), Error> {
        self.refuse_open()?;
        self.record_second_half(encoder, merged, true)
    }

    /// [`GradSet::record_merged`] without the write, as [`GradSet::record_deferred`].
    ///
    /// # Errors
    /// As [`GradSet::record_merged`].
    pub fn record_merged_deferred(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        merged: &Ledger,
    ) -> Result<(), Error> {
        self.refuse_open()?;
        self.record_second_half(encoder, merged, false)
    }

    pub(crate) fn record_first_half(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: ScaleSource<'_>,
        clip: Option<ClipNorm>,
        skip_above: Option<f32>,
    ) -> Result<(), Error> {
        check_clip(&self.name, self.tensors.iter().map(|t| t.format), clip)?;
        let shared = &self.context.shared;
        let mut sharding = self.sharding();
        // A new ledger buffer holds the ticket 0.
        let ticket = sharding.recorded.wrapping_add(1).max(1);
        let step = self.ledger_group(scale, clip, ticket)?;
        let ledger = self.compiled.shard_ledger(shared)?;
        let partials = self.compiled.partials(shared, Clip::Norm(clip).norm_type())?;
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("gradclip ledger"),
            timestamp_writes: None,
        });
        self.compiled.record_norm_partials(&mut pass, partials);
        ledger.record(&mut pass, &step);
        drop(pass);
        sharding.recorded = ticket;
        sharding.measured = Some(Measured { clip, skip_above });
        sharding.own = None;
        Ok(())
    }

    pub(crate) fn record_second_half(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        merged: &Ledger,
        apply: bool,
    ) -> Result<(), Error> {
        let mut sharding = self.sharding();
        let no_ledger = || Error::NoLedger { set: self.name.clone() };
        let own = sharding.own.as_ref().ok_or_else(no_ledger)?;
        let Measured { clip, skip_above } = sharding.measured.ok_or_else(no_ledger)?;
        merged.check_holds(own)?;
        let shared = &self.context.shared;
        let pipeline = shared.pipeline(Kernel::NormMerged)?;
        let group = self.merged_group(merged, clip, skip_above)?;
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("gradclip merged"),
            timestamp_writes: None,
        });
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &self.compiled.norm_finish, &[]);
        pass.set_bind_group(1, &group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        if apply {
            self.compiled.record_apply(&mut pass);
        }
        drop(pass);
        sharding.measured = None;
        sharding.own = None;
        drop(sharding);
        self.count_recorded();
        Ok(())
    }

    /// Between the halves nothing else may happen to the gradients or the partials.
    pub(crate) fn forget_ledger(&self) {
        let mut sharding = self.sharding();
        sharding.measured = None;
        sharding.own = None;
    }

    fn start_ledger(&self) -> Result<(crate::gpu::readback::Pending, u32), Error> {
        let recorded = {
            let sharding = self.sharding();
            sharding.measured.ok_or_else(|| Error::NoLedger { set: self.name.clone() })?;
            sharding.recorded
        };
        let output = self.compiled.shard_ledger(&self.context.shared)?.output;
        let whose = format!("set \"{}\"", self.name);
        Ok((crate::gpu::readback::start_copy(&self.context, &whose, &output)?, recorded))
    }

    fn finish_ledger(&self, bytes: &[u8], recorded: u32) -> Result<Ledger, Error> {
        let shard: Shard = bytemuck::pod_read_unaligned(&bytes[..size_of::<Shard>()]);
        let mut sharding = self.sharding();
        let no_ledger = || Error::NoLedger { set: self.name.clone() };
        let Measured { clip, .. } = sharding.measured.ok_or_else(no_ledger)?;
        if recorded != sharding.recorded {
            return Err(no_ledger());
        }
        if shard.ticket != recorded {
            return Err(Error::NotRun { set: self.name.clone() });
        }
        let ledger = shard.ledger(clip, self.elements())?;
        sharding.own = Some(ledger.clone());
        Ok(ledger)
    }

    fn sharding(&self) -> MutexGuard<'_, Sharding> {
        self.sharding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn ledger(&self, clip: Option<ClipNorm>, elements: u64) -> Result<Ledger, Error> {
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
            clip,
            scale: LossScale::new(self.scale)?,
            elements,
            nonfinite: [nan, pos_inf, neg_inf],
            overflow: self.overflow != 0,
            sums,
        }))
    }
}
