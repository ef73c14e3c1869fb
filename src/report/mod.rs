//! What the GPU decided, read later.

mod verdict;

use std::fmt;
use std::sync::Arc;

pub use verdict::Verdict;
pub(crate) use verdict::{VERDICT_BYTES, verdict_of};

use crate::slice::Tensor;
use crate::{Nonfinite, R24};

/// Bytes of the counts of one tensor.
pub(crate) const CENSUS_BYTES: u64 = 36;

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
/// exponents, and every such number that it can produce fits an f64.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Steps of this set that the GPU had run when this was read, this one included (modulo 2^32).
    pub run: u32,
    /// The loss scale that was divided out.
    pub scale: f32,
    /// Norm over all tensors, of the unscaled gradients, before clipping: the norm that [`ClipNorm`](crate::ClipNorm) names,
    /// else L2. 0 if something was nonfinite.
    pub total_norm: f64,
    /// `min(1, max_norm / (total_norm + eps))`. 0 if `skipped`.
    pub coefficient: f64,
    /// `coefficient / scale`: what every gradient was multiplied by. 0 if `skipped`; then nothing was written.
    pub factor: f64,
    /// The step is to be skipped, for one of the next three reasons. No gradient changed.
    pub skipped: bool,
    /// A gradient was NaN or infinite, or `overflow`.
    pub found_inf: bool,
    /// All gradients were finite, but a result would not fit its format.
    pub overflow: bool,
    /// The norm was above the threshold from which steps are skipped.
    pub above: bool,
    /// Per tensor, in the order of the set: what was not finite.
    pub nonfinite: Vec<Nonfinite>,
    pub(crate) tensors: Arc<[Tensor]>,
}

/// A tensor that held something nonfinite.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TensorReport<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// What it held.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub nonfinite: Nonfinite,
}

impl Report {
    /// Whether the norm was above the limit, so that the gradients were scaled down.
    #[must_use]
    pub fn clipped(&self) -> bool {
        !self.skipped && self.coefficient < 1.0
    }

    /// The tensors that held something nonfinite, in the order of the set.
    pub fn bad_tensors(&self) -> impl Iterator<Item = TensorReport<'_>> {
        self.tensors
            .iter()
            .zip(&self.nonfinite)
            .filter(|(_, nonfinite)| nonfinite.first.is_some())
            .map(|(tensor, &nonfinite)| TensorReport { name: &tensor.name, nonfinite })
    }

    /// `bytes`: the report buffer.
    pub(crate) fn decode(bytes: &[u8], tensors: &Arc<[Tensor]>) -> Self {
        let (verdict, census) = bytes.split_at(VERDICT_BYTES as usize);
        let v: Verdict = bytemuck::pod_read_unaligned(verdict);
        let r24 = |significand, exponent| R24 { significand, exponent }.to_f64();
        // Before the first step there is a verdict, but nothing was counted.
        let counted = v.run != 0 && v.found_inf != 0 && v.overflow == 0;
        let nonfinite = if !counted {
            vec![Nonfinite::default(); tensors.len()]
        } else {
            let entries = census.chunks_exact(CENSUS_BYTES as usize).take(tensors.len());
            entries.map(decode_nonfinite).collect()
        };
        Self {
            run: v.run,
            scale: v.scale,
            total_norm: r24(v.norm_significand, v.norm_exponent),
            coefficient: r24(v.coefficient_significand, v.coefficient_exponent),
            factor: r24(v.factor_significand, v.factor_exponent),
            skipped: v.skip != 0,
            found_inf: v.found_inf != 0,
            overflow: v.overflow != 0,
            above: v.above != 0,
            nonfinite,
            tensors: Arc::clone(tensors),
        }
    }
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale {}", self.scale)?;
        if self.found_inf && !self.overflow {
            write!(f, ", found inf/NaN, step skipped:")?;
            for bad in self.bad_tensors() {
                write!(f, " {} ({})", bad.name, bad.nonfinite)?;
            }
            return Ok(());
        }
        write!(f, ", norm {:.9e}", self.total_norm)?;
        if self.overflow {
            write!(f, ", a result would overflow its format, step skipped")
        } else if self.above {
            write!(f, ", above the threshold, step skipped")
        } else {
            write!(f, ", coefficient {:.9e}", self.coefficient)
        }
    }
}

/// The fields of a report, and of the tensors only those that held something nonfinite, by name.
#[cfg(feature = "serde")]
impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut out = serializer.serialize_struct("Report", 11)?;
        out.serialize_field("run", &self.run)?;
        out.serialize_field("scale", &self.scale)?;
        out.serialize_field("total_norm", &self.total_norm)?;
        out.serialize_field("coefficient", &self.coefficient)?;
        out.serialize_field("factor", &self.factor)?;
        out.serialize_field("clipped", &self.clipped())?;
        out.serialize_field("skipped", &self.skipped)?;
        out.serialize_field("found_inf", &self.found_inf)?;
        out.serialize_field("overflow", &self.overflow)?;
        out.serialize_field("above", &self.above)?;
        out.serialize_field("nonfinite", &self.bad_tensors().collect::<Vec<_>>())?;
        out.end()
    }
}
