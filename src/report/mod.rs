//! What the GPU decided, read later.

mod verdict;

pub use verdict::Verdict;
pub(crate) use verdict::{HEAD_BYTES, OWN_AT, STATE_AT, VERDICT_BYTES, verdict_of};

use std::fmt;

use crate::slice::Tensor;
use crate::{Nonfinite, R24};

/// Bytes of the counts of one tensor.
pub(crate) const CENSUS_BYTES: u64 = 36;
/// Bytes of the counts of what one tensor lost.
pub(crate) const LOST_BYTES: u64 = 16;

/// What a step did to one tensor that was clipped by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorClip {
    /// Its norm, unscaled, before clipping; `None` if it holds NaN or infinity.
    pub norm: Option<R24>,
    /// What it was clipped by: `min(1, max_norm / (norm + eps))`; 0 if the step was given up.
    pub coefficient: R24,
}

/// What one step of a set decided.
///
/// `total_norm`, `coefficient` and `factor` are exact: the step computes with 24-bit significands and unbounded
/// exponents, and every such number that it can produce fits an f64. What was not measured or not done is `None`, null in
/// JSON, and never 0.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Report {
    /// Steps of this set that the GPU had run when this was read, this one included (modulo 2^32).
    pub run: u32,
    /// Steps of this set that were taken, up to this one: AdamW's t.
    pub taken: u32,
    /// The loss scale that was divided out.
    pub scale: f32,
    /// Norm over all tensors that count, of the unscaled gradients, before clipping, of the type that the step's
    /// [`Limit`](crate::Limit) names. `None` if something was nonfinite.
    pub total_norm: Option<f64>,
    /// `min(1, max_norm / (total_norm + eps))`. `None` if `skipped`.
    pub coefficient: Option<f64>,
    /// `coefficient / (scale * divisor)`: what every gradient was multiplied by, or is to be by the optimizer's kernel.
    /// `None` if `skipped`; then nothing was written.
    pub factor: Option<f64>,
    /// Whether the coefficient was below 1.
    pub clipped: bool,
    /// The step is to be skipped, for one of the next six reasons. No gradient changed.
    pub skipped: bool,
    /// A gradient was NaN or infinite, or `overflow`.
    pub found_inf: bool,
    /// All gradients were finite, but a result would not fit its format.
    pub overflow: bool,
    /// The norm was above the threshold from which steps are skipped.
    pub above: bool,
    /// A number that the step read from a buffer was none that it can use.
    pub bad_scalar: bool,
    /// Another set that is stepped together with this one was skipped.
    pub other: bool,
    /// Too many steps in a row were skipped: nothing moves.
    pub halted: bool,
    /// The tensors that held something nonfinite, in the order of the set.
    pub nonfinite: Vec<TensorReport>,
    /// What the step in place made 0 or left subnormal, of the tensors where it did, if it was asked to count.
    pub lost: Option<Vec<TensorLost>>,
}

/// A tensor that held something nonfinite.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TensorReport {
    /// The tensor's name.
    pub name: String,
    /// What it held.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub nonfinite: Nonfinite,
}

/// What unscaling and clipping in place took from one tensor: gradients that the loss scale had saved from f16's limits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TensorLost {
    /// The tensor's name.
    pub name: String,
    /// Elements that were not 0 and became 0.
    pub zeros: u64,
    /// Elements that are subnormal in their format afterwards.
    pub subnormals: u64,
}

/// The norm of one tensor.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TensorNorm {
    /// The tensor's name.
    pub name: String,
    /// Its norm, unscaled, before clipping; `None` if it holds NaN or infinity.
    pub norm: Option<f64>,
}

impl Report {
    /// The tensors that held something nonfinite, in the order of the set.
    pub fn bad_tensors(&self) -> impl Iterator<Item = &TensorReport> {
        self.nonfinite.iter()
    }

    /// What was not finite in a tensor.
    #[must_use]
    pub fn nonfinite_in(&self, tensor: &str) -> Nonfinite {
        let found = self.nonfinite.iter().find(|found| found.name == tensor);
        found.map_or_else(Nonfinite::default, |found| found.nonfinite)
    }

    /// `bytes`: the report buffer.
    pub(crate) fn decode(bytes: &[u8], tensors: &[Tensor]) -> Self {
        let v: Verdict = bytemuck::pod_read_unaligned(&bytes[..VERDICT_BYTES as usize]);
        let (ran, taken) = (v.run != 0, v.skip == 0);
        let unmeasured = (v.found_inf != 0 && v.overflow == 0) || v.bad_scalar != 0 || v.halted != 0;
        let coefficient = v.coefficient().to_f64();
        let nonfinite = census(bytes, tensors.len())
            .into_iter()
            .zip(tensors)
            .filter(|(nonfinite, _)| nonfinite.first.is_some())
            .map(|(nonfinite, tensor)| TensorReport { name: tensor.name.clone(), nonfinite });
        Self {
            run: v.run,
            taken: v.taken,
            scale: v.scale,
            total_norm: (ran && !unmeasured).then(|| v.norm().to_f64()),
            coefficient: taken.then_some(coefficient),
            factor: taken.then(|| v.step_factor().to_f64()),
            clipped: taken && coefficient < 1.0,
            skipped: !taken,
            found_inf: v.found_inf != 0,
            overflow: v.overflow != 0,
            above: v.above != 0,
            bad_scalar: v.bad_scalar != 0,
            other: v.other != 0,
            halted: v.halted != 0,
            nonfinite: nonfinite.collect(),
            lost: None,
        }
    }
}

/// What was nonfinite, by tensor. `bytes`: the report buffer.
pub(crate) fn census(bytes: &[u8], tensors: usize) -> Vec<Nonfinite> {
    let (head, counts) = bytes.split_at(HEAD_BYTES as usize);
    let v: Verdict = bytemuck::pod_read_unaligned(&head[..VERDICT_BYTES as usize]);
    // Before the first step there is a verdict, but nothing was counted.
    if v.run == 0 || v.found_inf == 0 || v.overflow != 0 {
        return vec![Nonfinite::default(); tensors];
    }
    counts.chunks_exact(CENSUS_BYTES as usize).take(tensors).map(decode_nonfinite).collect()
}

fn decode_nonfinite(entry: &[u8]) -> Nonfinite {
    let words: [u32; 9] = bytemuck::pod_read_unaligned(entry);
    let wide = |i: usize| u64::from(words[i]) | u64::from(words[i + 1]) << 32;
    Nonfinite {
        nan: wide(0),
        pos_inf: wide(2),
        neg_inf: wide(4),
        first: Some(wide(6)).filter(|&first| first != u64::MAX),
    }
}

/// What each tensor lost, of those that did. `bytes`: the buffer that `tally/lost.wgsl` counts in.
pub(crate) fn decode_lost(bytes: &[u8], tensors: &[Tensor]) -> Vec<TensorLost> {
    let entries = bytes.chunks_exact(LOST_BYTES as usize).zip(tensors);
    entries
        .map(|(entry, tensor)| {
            let words: [u32; 4] = bytemuck::pod_read_unaligned(entry);
            let wide = |i: usize| u64::from(words[i]) | u64::from(words[i + 1]) << 32;
            TensorLost { name: tensor.name.clone(), zeros: wide(0), subnormals: wide(2) }
        })
        .filter(|lost| lost.zeros > 0 || lost.subnormals > 0)
        .collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale {}", self.scale)?;
        if self.halted {
            return write!(f, ", halted after too many skipped steps in a row");
        }
        if self.found_inf && !self.overflow {
            write!(f, ", found inf/NaN, step skipped:")?;
            for bad in self.bad_tensors() {
                write!(f, " {} ({})", bad.name, bad.nonfinite)?;
            }
            return Ok(());
        }
        if self.bad_scalar {
            return write!(f, ", a number from a buffer cannot be used, step skipped");
        }
        if let Some(norm) = self.total_norm {
            write!(f, ", norm {norm:.9e}")?;
        }
        if self.overflow {
            write!(f, ", a result would overflow its format, step skipped")
        } else if self.above {
            write!(f, ", above the threshold, step skipped")
        } else if self.other {
            write!(f, ", another set was skipped, step skipped")
        } else if let Some(coefficient) = self.coefficient {
            write!(f, ", coefficient {coefficient:.9e}")
        } else {
            write!(f, ", step skipped")
        }
    }
}
