//! One step of one optimizer as types, so that the wrong order does not compile.
//!
//! [`Accumulating`] -> [`Unscaled`] -> [`Limited`] -> [`Recorded`]. Each takes the one before by value: there is no
//! way to limit before unscaling, to unscale or limit twice, to add a microbatch after unscaling, or to record twice. A step
//! owns what it needs, so that it can be stored.

use std::future::Future;

use crate::grad_set::{Also, Half, Ticket, Told};
use crate::limit::AnyLimit;
use crate::{Error, GradScaler, GradSet, Ledger, Limit, Members, OneFactor, Scalar, SkipRule, Unscale};

/// Marks sets as open until it is dropped.
#[derive(Debug)]
pub(super) struct Open {
    scaler: GradScaler,
    members: Members,
    pub ticket: Ticket,
    pub microbatches: u32,
    divisor: Scalar,
    pub also: Also,
}

impl Open {
    pub fn new(scaler: GradScaler, members: Members, ticket: Ticket) -> Self {
        let divisor = Scalar::Value(1.0);
        Self { scaler, members, ticket, microbatches: 0, divisor, also: Also::default() }
    }

    /// Whether nobody gave it up.
    pub fn check(&self) -> Result<(), Error> {
        self.members.sets().iter().try_for_each(|set| set.check_ticket(self.ticket))
    }

    /// The scale is the scaler's.
    fn unscale(&self) -> Unscale {
        Unscale::by(1.0).divide_by(self.divisor.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.scaler.close(self.ticket);
    }
}

/// An open step of one optimizer, or of a [`Joint`](crate::Joint): `S` says how far it is. Dropping it gives it up.
#[derive(Debug)]
#[must_use = "dropping an open step gives it up; record it and pass it to GradScaler::update"]
pub struct Step<S> {
    open: Open,
    state: S,
}

/// Gradients are still being added up: run backward of every microbatch now, with the loss multiplied by
/// [`GradScaler::scale_buffer`].
#[derive(Debug)]
pub struct Accumulating(());

/// The gradients are complete. The division by the scale is part of what is recorded.
#[derive(Debug)]
pub struct Unscaled(());

/// It is known how the gradients are limited.
#[derive(Debug)]
pub struct Limited<K = OneFactor> {
    limit: Limit<K>,
}

/// The first half of a step over a part of the gradients is on an encoder: submit it, read the ledger, add up the ledgers of
/// all parts, and record the rest.
#[derive(Debug)]
pub struct Sharded(());

/// The commands are on an encoder. Give it to [`GradScaler::update`].
#[derive(Debug)]
pub struct Recorded(());

impl<S> Step<S> {
    /// The set, or the sets of a joint norm.
    #[must_use]
    pub fn sets(&self) -> &[GradSet] {
        self.open.members.sets()
    }

    pub(super) fn open(&self) -> &Open {
        &self.open
    }

    pub(super) fn is_of(&self, scaler: &GradScaler) -> bool {
        std::sync::Arc::ptr_eq(&self.open.scaler.0, &scaler.0)
    }

    /// For errors.
    pub(super) fn name(&self) -> String {
        self.sets().first().map_or_else(String::new, |set| set.name().into())
    }
}

impl Step<Accumulating> {
    pub(super) fn new(open: Open) -> Self {
        Self { open, state: Accumulating(()) }
    }

    /// Counts a microbatch whose gradients were added to the set's, for the report.
    pub fn microbatch(&mut self) -> &mut Self {
        self.open.microbatches = self.open.microbatches.saturating_add(1);
        self
    }

    /// Ends accumulation.
    pub fn unscale(self) -> Step<Unscaled> {
        Step { open: self.open, state: Unscaled(()) }
    }
}

impl Step<Unscaled> {
    /// Divides by another number beside the scale, before the norm is taken: tokens, or accumulated microbatches.
    pub fn divide_by(mut self, divisor: impl Into<Scalar>) -> Self {
        self.open.divisor = divisor.into();
        self
    }

    /// Asks for the norm after the step, measured by a second read pass, in the report. A deferred step has none. Prepare it
    /// with [`Prepare::NormAfter`](crate::Prepare::NormAfter).
    pub fn measure_norm_after(mut self) -> Self {
        self.open.also.norm_after = true;
        self
    }

    /// Asks for the norm of each tensor in the report. Prepare it with
    /// [`Prepare::TensorNorms`](crate::Prepare::TensorNorms).
    pub fn measure_tensor_norms(mut self) -> Self {
        self.open.also.tensor_norms = true;
        self
    }

    /// Asks for counts of what the step in place makes 0, or leaves subnormal, in the report. A deferred step loses nothing.
    /// Prepare it with [`Prepare::Lost`](crate::Prepare::Lost). Together with a limit of each tensor or element it needs a
    /// device that binds four storage buffers beside those of a dispatch, and is [`Error::DeviceLimit`] elsewhere.
    pub fn count_lost(mut self) -> Self {
        self.open.also.lost = true;
        self
    }

    /// How the gradients are limited.
    pub fn limit<K>(self, limit: impl Into<Limit<K>>) -> Step<Limited<K>> {
        Step { open: self.open, state: Limited { limit: limit.into() } }
    }

    /// Records the step without a limit.
    ///
    /// # Errors
    /// As [`Step::<Limited>::record`](Step::record).
    pub fn record(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Recorded>, Error> {
        self.limit(Limit::none()).record(encoder)
    }

    /// [`Step::record_deferred`] without a limit.
    ///
    /// # Errors
    /// As [`Step::record`].
    pub fn record_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Recorded>, Error> {
        self.limit(Limit::none()).record_deferred(encoder)
    }

    /// [`Step::record_ledger`] without a limit.
    ///
    /// # Errors
    /// As [`Step::record_ledger`].
    pub fn record_ledger(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Sharded>, Error> {
        self.limit(Limit::none()).record_ledger(encoder)
    }
}

impl<K> Step<Limited<K>> {
    /// Records the step: read, decide, change in place, as [`GradSet::record`].
    ///
    /// # Errors
    /// The errors of numbers outside their domains, [`Error::NotPrepared`] and [`Error::Wgpu`] as [`GradSet::record`];
    /// [`Error::GivenUp`] if the step was given up by name; [`Error::Together`] if other steps are open under
    /// [`SkipRule::All`], which has to hear them all. Nothing is recorded then, and the step is given up.
    pub fn record(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Recorded>, Error> {
        let mut pass = begin_pass(encoder);
        self.record_in(&mut pass)
    }

    /// [`Step::record`] inside a compute pass that the engine opened: with its timestamps, or between its own kernels.
    ///
    /// # Errors
    /// As [`Step::record`].
    pub fn record_in(self, pass: &mut wgpu::ComputePass<'_>) -> Result<Step<Recorded>, Error> {
        self.record_as(pass, true)
    }

    fn record_as(self, pass: &mut wgpu::ComputePass<'_>, in_place: bool) -> Result<Step<Recorded>, Error> {
        let Self { open, state } = self;
        open.check()?;
        open.scaler.check_alone()?;
        let limit = open.scaler.limit_of(state.limit.any());
        let unscale = open.unscale();
        let told =
            Told { unscale: &unscale, limit: &limit, scaler: Some(&open.scaler.0.state_group), in_place };
        let ready = open.members.ready(told, open.also)?;
        ready.record_reads(pass);
        ready.record_writes(pass);
        ready.done(pass);
        Ok(Step { open: recorded(open, in_place), state: Recorded(()) })
    }
}

impl Step<Limited<OneFactor>> {
    /// Records the read pass and the verdict only, as [`GradSet::record_deferred`]. The gradients stay as they are: the
    /// optimizer's kernel binds [`GradSet::verdict`], multiplies by the factor
    /// ([`scaled_wgsl`](crate::scaled_wgsl) does it, also where f32 cannot hold the factor) and does nothing if `skip` is
    /// set. A step then reads every gradient once and writes none.
    ///
    /// # Errors
    /// As [`Step::record`].
    pub fn record_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Recorded>, Error> {
        let mut pass = begin_pass(encoder);
        self.record_deferred_in(&mut pass)
    }

    /// [`Step::record_deferred`] inside a compute pass that the engine opened.
    ///
    /// # Errors
    /// As [`Step::record`].
    pub fn record_deferred_in(self, pass: &mut wgpu::ComputePass<'_>) -> Result<Step<Recorded>, Error> {
        self.record_as(pass, false)
    }

    /// Records the first half of a step over gradients of which this set holds a part, as [`GradSet::record_ledger`]: the
    /// scalers of all parts keep one scale, since they see one verdict. What
    /// [`measure_norm_after`](Step::measure_norm_after) and its like asked for is not measured: a part does not know it.
    ///
    /// # Errors
    /// [`Error::ShardLimit`] and [`Error::NotPrepared`] as [`GradSet::record_ledger`], and else as [`Step::record`].
    pub fn record_ledger(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Sharded>, Error> {
        self.record_ledger_as(encoder, true)
    }

    /// [`Step::record_ledger`] of a step that writes nothing.
    ///
    /// # Errors
    /// As [`Step::record_ledger`].
    pub fn record_ledger_deferred(self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Sharded>, Error> {
        self.record_ledger_as(encoder, false)
    }

    fn record_ledger_as(
        self,
        encoder: &mut wgpu::CommandEncoder,
        in_place: bool,
    ) -> Result<Step<Sharded>, Error> {
        let Self { mut open, state } = self;
        open.check()?;
        open.also = Also::default();
        let unscale = open.unscale();
        let limit = open.scaler.limit_of(state.limit.any());
        for set in open.members.sets() {
            let half = Half { unscale: unscale.clone(), limit: limit.clone(), in_place };
            set.record_first_half(encoder, half, Some(&open.scaler.0.state_group))?;
        }
        Ok(Step { open, state: Sharded(()) })
    }
}

impl Step<Sharded> {
    /// The ledger of this part: of a joint norm, that of all its sets, each of which is a part to [`Ledger::complete`]. Blocks until the GPU is done with everything submitted
    /// so far, at most a minute.
    ///
    /// # Errors
    /// As [`GradSet::read_ledger`].
    pub fn read_ledger(&self) -> Result<Ledger, Error> {
        self.open.check()?;
        let ledgers = self.sets().iter().map(GradSet::read_ledger).collect::<Result<Vec<_>, _>>()?;
        Ledger::one_part(ledgers)
    }

    /// [`Step::read_ledger`] without blocking, as [`GradSet::read_ledger_async`].
    ///
    /// # Errors
    /// The future's output, as [`GradSet::read_ledger`] but for the timeout.
    pub fn read_ledger_async(&self) -> impl Future<Output = Result<Ledger, Error>> + Send + use<> {
        let pending: Vec<_> = self.sets().iter().map(GradSet::read_ledger_async).collect();
        async move {
            let mut ledgers = Vec::with_capacity(pending.len());
            for ledger in pending {
                ledgers.push(ledger.await?);
            }
            Ledger::one_part(ledgers)
        }
    }

    /// Records the second half, from the ledger of all parts, as [`GradSet::record_merged`].
    ///
    /// # Errors
    /// [`Error::NoLedger`], [`Error::Ledger`] and [`Error::Wgpu`] as [`GradSet::record_merged`]; [`Error::GivenUp`].
    /// The step is given up then; of a joint norm some sets may be recorded, and no update will count them.
    pub fn record(
        self,
        encoder: &mut wgpu::CommandEncoder,
        merged: &Ledger,
    ) -> Result<Step<Recorded>, Error> {
        let open = self.open;
        open.check()?;
        for set in open.members.sets() {
            let skipped = set.record_second_half(encoder, merged, Some(&open.scaler.0.state_group))?;
            open.scaler.count_sharded(set, skipped);
        }
        Ok(Step { open, state: Recorded(()) })
    }
}

/// What is only measured in place was not measured.
fn recorded(mut open: Open, in_place: bool) -> Open {
    open.also.norm_after &= in_place;
    open.also.lost &= in_place;
    open
}

fn begin_pass(encoder: &mut wgpu::CommandEncoder) -> wgpu::ComputePass<'_> {
    encoder
        .begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some("gradclip"), timestamp_writes: None })
}

impl GradScaler {
    /// The limit of a step, with the scaler's threshold unless it has one of its own.
    fn limit_of(&self, limit: AnyLimit) -> AnyLimit {
        match (self.0.config.skip_above, &limit.skip_above) {
            (Some(most), None) => limit.skip_above(most),
            _ => limit,
        }
    }

    /// All or none cannot be told of one before the others are known.
    fn check_alone(&self) -> Result<(), Error> {
        if self.0.config.skip == SkipRule::All && self.book().open.len() > 1 {
            let why =
                "under SkipRule::All other steps are open; record them by GradScaler::record_all".into();
            return Err(Error::Together { why });
        }
        Ok(())
    }
}

/// Records steps that may be skipped together.
pub(super) fn record_all<K>(
    scaler: &GradScaler,
    encoder: &mut wgpu::CommandEncoder,
    steps: Vec<Step<Limited<K>>>,
    in_place: bool,
) -> Result<Vec<Step<Recorded>>, Error> {
    let mut told = Vec::with_capacity(steps.len());
    let mut opens = Vec::with_capacity(steps.len());
    for step in steps {
        if !step.is_of(scaler) {
            return Err(Error::OtherScaler { set: step.name() });
        }
        step.open.check()?;
        told.push((step.open.unscale(), scaler.limit_of(step.state.limit.any())));
        opens.push(recorded(step.open, in_place));
    }
    let group = &scaler.0.state_group;
    let ready = opens.iter().zip(&told).map(|(open, (unscale, limit))| {
        open.members.ready(Told { unscale, limit, scaler: Some(group), in_place }, open.also)
    });
    let ready = ready.collect::<Result<Vec<_>, Error>>()?;
    let mut pass = begin_pass(encoder);
    ready.iter().for_each(|step| step.record_reads(&mut pass));
    if let Some(agreement) = &scaler.0.agreement {
        let sets = || opens.iter().flat_map(|open| open.members.sets());
        pass.set_pipeline(&agreement.pipeline);
        let hear = sets().enumerate().map(|(i, set)| (usize::from(i > 0), set));
        for (turn, set) in hear.chain(sets().map(|set| (2, set))) {
            pass.set_bind_group(0, &agreement.turns[turn], &[]);
            pass.set_bind_group(1, set.head_group(), &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
    }
    ready.iter().for_each(|step| step.record_writes(&mut pass));
    ready.into_iter().for_each(|step| step.done(&pass));
    drop(pass);
    Ok(opens.into_iter().map(|open| Step { open, state: Recorded(()) }).collect())
}
