//! Several sets under one norm: parameter groups with optimizers of their own and one limit.

use std::sync::Arc;

use super::params::Told;
use super::record::{Also, Ready, begin_pass};
use super::shard::{Shard, shard_group};
use super::{GradSet, open::Members};
use crate::gpu::context::Shared;
use crate::gpu::guard::guarded;
use crate::gpu::make::{empty, group, part};
use crate::gpu::shader::Kernel;
use crate::limit::AnyLimit;
use crate::plan::MAX_ELEMENTS;
use crate::{Error, Limit, Unscale};

/// Where the ledger of a set lies in the joint buffer: WebGPU's largest alignment.
const SLOT_BYTES: u64 = 256;

/// Several sets of one device under one norm and one limit, while each keeps its optimizer, its verdict and its t.
///
/// All are read, then all decide the same from the sum, then all are written, on the GPU: nothing is read back. If one holds
/// NaN or infinity, or overflows, all are skipped. A handle: cheap to clone and to store.
/// [`GradScaler::begin`](crate::GradScaler::begin) takes it as it takes a set; [`Joint::record`] is without a scaler.
#[derive(Debug, Clone)]
pub struct Joint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sets: Vec<GradSet>,
    ledgers: wgpu::Buffer,
    first: wgpu::ComputePipeline,
    joined: wgpu::ComputePipeline,
}

impl Joint {
    /// Sets of one context, all different, none of which lies where another does.
    ///
    /// # Errors
    /// [`Error::Together`] if there are none, one is given twice, they are of several contexts or hold 2^39 elements or more
    /// together; [`Error::SharedBytes`] if two share bytes, which would count twice; [`Error::Wgpu`] if wgpu refuses a
    /// kernel or a buffer; [`Error::DeviceLost`].
    pub fn new<'a>(sets: impl IntoIterator<Item = &'a GradSet>) -> Result<Self, Error> {
        let sets: Vec<GradSet> = sets.into_iter().cloned().collect();
        let refuse = |why: String| Err(Error::Together { why });
        let Some(context) = sets.first().map(|set| set.0.context.clone()) else {
            return refuse("there are none".into());
        };
        for (i, set) in sets.iter().enumerate() {
            if !Arc::ptr_eq(&set.0.context.shared, &context.shared) {
                return refuse(format!("set \"{}\" is of another context than the first", set.name()));
            }
            for other in &sets[..i] {
                if set.same(other) {
                    return refuse(format!("set \"{}\" is given twice", set.name()));
                }
                other.check_apart(set)?;
            }
        }
        let elements = sets.iter().fold(0u64, |sum, set| sum.saturating_add(set.elements()));
        if elements >= MAX_ELEMENTS {
            return refuse(format!("they hold {elements} elements; one norm covers fewer than 2^39"));
        }
        let shared = &context.shared;
        let first = shared.pipeline(Kernel::ShardLedger)?;
        let joined = shared.pipeline(Kernel::NormJoined)?;
        let size = SLOT_BYTES * sets.len() as u64;
        let ledgers =
            guarded(&shared.device, "allocating ledgers", || empty(shared, "gradclip joint", size))?;
        let joint = Self(Arc::new(Inner { sets, ledgers, first, joined }));
        (0..joint.sets().len()).try_for_each(|i| joint.groups(shared, i).map(drop))?;
        Ok(joint)
    }

    /// The sets.
    #[must_use]
    pub fn sets(&self) -> &[GradSet] {
        &self.0.sets
    }

    /// Records one step of all sets, as [`GradSet::record`], under one norm.
    ///
    /// # Errors
    /// As [`GradSet::record`], for any of the sets; [`Error::SharedBytes`] if two were rebound to the same bytes. Nothing is
    /// recorded then.
    pub fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit>,
    ) -> Result<(), Error> {
        self.record_free(encoder, &scale.into(), &limit.into().any(), true)
    }

    /// [`Joint::record`] without the write, as [`GradSet::record_deferred`].
    ///
    /// # Errors
    /// As [`Joint::record`].
    pub fn record_deferred(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scale: impl Into<Unscale>,
        limit: impl Into<Limit>,
    ) -> Result<(), Error> {
        self.record_free(encoder, &scale.into(), &limit.into().any(), false)
    }

    fn record_free(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        unscale: &Unscale,
        limit: &AnyLimit,
        in_place: bool,
    ) -> Result<(), Error> {
        self.sets().iter().try_for_each(GradSet::refuse_open)?;
        let told = Told { unscale, limit, scaler: None, in_place };
        let ready = self.ready(told, Also::default())?;
        let mut pass = begin_pass(encoder, "gradclip joint");
        ready.record_reads(&mut pass);
        ready.record_writes(&mut pass);
        ready.done(&pass);
        Ok(())
    }

    /// Looks up what a step of all needs.
    pub(crate) fn ready<'a>(&'a self, told: Told<'a>, also: Also) -> Result<ReadyJoint<'a>, Error> {
        told.check()?;
        let sets = self.sets();
        let uniform = told.uniform().with_joined(sets.len());
        let mut steps = Vec::with_capacity(sets.len());
        for (i, set) in sets.iter().enumerate() {
            // They may have been rebound.
            sets[..i].iter().try_for_each(|other| other.check_apart(set))?;
            let groups = self.groups(&set.0.context.shared, i)?;
            steps.push((Ready::with(set, told, also, uniform)?, groups));
        }
        Ok(ReadyJoint { joint: &self.0, steps })
    }

    /// Where set number `i` leaves its ledger, and what it decides from.
    fn groups(&self, shared: &Shared, i: usize) -> Result<Groups, Error> {
        let set = &self.0.sets[i];
        let planned = Arc::clone(&set.compiled().planned);
        let made = planned.extras.joined.get_or_init(Default::default);
        let mut made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, groups)) = made.iter().find(|(ledgers, _)| *ledgers == self.0.ledgers) {
            return Ok(groups.clone());
        }
        let groups = guarded(&shared.device, "binding joint sets", || {
            let slot = part(&self.0.ledgers, SLOT_BYTES * i as u64, size_of::<Shard>() as u64);
            let scratch = &planned.scratch;
            let resources = [
                scratch.table.as_entire_binding(),
                scratch.partials.as_entire_binding(),
                set.0.report.as_entire_binding(),
                scratch.finish(),
                self.0.ledgers.as_entire_binding(),
            ];
            Groups {
                first: shard_group(shared, &planned, slot),
                joined: group(shared, &shared.layouts.norm_joined, &resources),
            }
        })?;
        made.push((self.0.ledgers.clone(), groups.clone()));
        Ok(groups)
    }
}

/// The bind groups of one of several sets.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    first: wgpu::BindGroup,
    joined: wgpu::BindGroup,
}

/// A step of several sets that has all it needs.
pub(crate) struct ReadyJoint<'a> {
    joint: &'a Inner,
    steps: Vec<(Ready<'a>, Groups)>,
}

impl ReadyJoint<'_> {
    pub fn record_reads(&self, pass: &mut wgpu::ComputePass<'_>) {
        for (step, groups) in &self.steps {
            step.record_words(pass);
            step.record_partials(pass);
            step.record_decision(pass, &self.joint.first, &groups.first);
        }
        for (step, groups) in &self.steps {
            step.record_decision(pass, &self.joint.joined, &groups.joined);
            step.record_tensors(pass);
        }
    }

    pub fn record_writes(&self, pass: &mut wgpu::ComputePass<'_>) {
        self.steps.iter().for_each(|(step, _)| step.record_writes(pass));
    }

    pub fn done(self, pass: &wgpu::ComputePass<'_>) {
        self.steps.into_iter().for_each(|(step, _)| step.done(pass));
    }
}

/// Steps of one set or of several under one norm.
pub(crate) enum ReadyMembers<'a> {
    One(Ready<'a>),
    Joint(ReadyJoint<'a>),
}

impl Members {
    pub(crate) fn ready<'a>(&'a self, told: Told<'a>, also: Also) -> Result<ReadyMembers<'a>, Error> {
        Ok(match self {
            Self::One(set) => ReadyMembers::One(Ready::new(set, told, also)?),
            Self::Joint(joint) => ReadyMembers::Joint(joint.ready(told, also)?),
        })
    }
}

impl ReadyMembers<'_> {
    pub fn record_reads(&self, pass: &mut wgpu::ComputePass<'_>) {
        match self {
            Self::One(step) => step.record_reads(pass),
            Self::Joint(steps) => steps.record_reads(pass),
        }
    }

    pub fn record_writes(&self, pass: &mut wgpu::ComputePass<'_>) {
        match self {
            Self::One(step) => step.record_writes(pass),
            Self::Joint(steps) => steps.record_writes(pass),
        }
    }

    pub fn done(self, pass: &wgpu::ComputePass<'_>) {
        match self {
            Self::One(step) => step.done(pass),
            Self::Joint(steps) => steps.done(pass),
        }
    }
}
