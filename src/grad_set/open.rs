//! Whether a step of a set is open, and whose.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::GradSet;
use crate::{Error, Joint};

/// An open step: which scaler's, and which of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub scaler: u64,
    pub step: u64,
}

impl Ticket {
    pub fn new(scaler: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { scaler, step: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl GradSet {
    /// A step outside the open one would divide the scale out a second time.
    pub(crate) fn refuse_open(&self) -> Result<(), Error> {
        match self.ticket() {
            None => Ok(()),
            Some(_) => Err(Error::StepOpen { set: self.0.name.clone() }),
        }
    }

    pub(crate) fn open_for(&self, ticket: Ticket) -> Result<(), Error> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        match *open {
            None => *open = Some(ticket),
            Some(other) if other.scaler == ticket.scaler => {
                return Err(Error::StepOpen { set: self.0.name.clone() });
            }
            Some(_) => return Err(Error::OtherScaler { set: self.0.name.clone() }),
        }
        Ok(())
    }

    /// Closes the step, unless it was given up and another is open by now.
    pub(crate) fn close(&self, ticket: Ticket) {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if *open == Some(ticket) {
            *open = None;
            drop(open);
            // A half of a step that was given up is not for the next.
            self.forget_ledger();
        }
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the step is still open.
    pub(crate) fn check_ticket(&self, ticket: Ticket) -> Result<(), Error> {
        if self.ticket() == Some(ticket) {
            return Ok(());
        }
        Err(Error::GivenUp { set: self.0.name.clone() })
    }

    /// Refuses a set that lies where this one does.
    pub(crate) fn check_apart(&self, other: &Self) -> Result<(), Error> {
        let (a, b) = (self.compiled(), other.compiled());
        let Some((mine, theirs)) = shared_bytes(&a.spans, &b.spans) else { return Ok(()) };
        Err(Error::SharedBytes {
            set: self.0.name.clone(),
            tensor: self.0.tensors[mine].name.clone(),
            other_set: other.0.name.clone(),
            other_tensor: other.0.tensors[theirs].name.clone(),
        })
    }
}

/// Where the tensors of a set lie, by buffer, in order: start, end, which tensor.
#[derive(Debug, Default)]
pub(crate) struct Spans(HashMap<wgpu::Buffer, Vec<(u64, u64, usize)>>);

impl Spans {
    #[allow(clippy::mutable_key_type, reason = "wgpu compares and hashes a buffer by its identity")]
    pub fn new(layout: &[crate::plan::PlanTensor], buffers: &[wgpu::Buffer]) -> Self {
        let mut spans: HashMap<wgpu::Buffer, Vec<(u64, u64, usize)>> = HashMap::new();
        for (i, (tensor, buffer)) in layout.iter().zip(buffers).enumerate().filter(|(_, (t, _))| t.len > 0) {
            spans.entry(buffer.clone()).or_default().push((tensor.offset, tensor.end(), i));
        }
        spans.values_mut().for_each(|of_buffer| of_buffer.sort_unstable());
        Self(spans)
    }
}

/// The first tensors of two sets that share bytes.
fn shared_bytes(a: &Spans, b: &Spans) -> Option<(usize, usize)> {
    a.0.iter().find_map(|(buffer, mine)| {
        let theirs = b.0.get(buffer)?;
        let (mut i, mut j) = (0, 0);
        while let (Some(&(start, end, tensor)), Some(&(other_start, other_end, other))) =
            (mine.get(i), theirs.get(j))
        {
            if start < other_end && other_start < end {
                return Some((tensor, other));
            }
            if end <= other_end {
                i += 1;
            } else {
                j += 1;
            }
        }
        None
    })
}

/// One set, or several under one norm, which are begun, recorded and updated from together.
#[derive(Debug, Clone)]
pub enum Members {
    /// One set.
    One(GradSet),
    /// Several.
    Joint(Joint),
}

impl Members {
    pub(crate) fn sets(&self) -> &[GradSet] {
        match self {
            Self::One(set) => std::slice::from_ref(set),
            Self::Joint(joint) => joint.sets(),
        }
    }
}

impl From<&GradSet> for Members {
    fn from(set: &GradSet) -> Self {
        Self::One(set.clone())
    }
}

impl From<&Joint> for Members {
    fn from(joint: &Joint) -> Self {
        Self::Joint(joint.clone())
    }
}
