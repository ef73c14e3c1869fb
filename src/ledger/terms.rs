//! What all parts of a sharded step have to be told alike.

use super::TAG;
use crate::limit::{AnyLimit, Rule};
use crate::{Error, Format, NormType, Scalar};

pub(crate) const LINF: &str = "a largest magnitude is no sum; sharded steps have an L1 or an L2 norm";

/// The numbers of a sharded step beside the loss scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Terms {
    pub norm_type: NormType,
    /// Infinity: no limit.
    pub max_norm: f32,
    pub eps: f32,
    pub skip_above: f32,
    pub divisor: f32,
    pub in_place: bool,
}

impl Terms {
    /// Of numbers that were checked. `Err`: why the step cannot be sharded.
    pub fn new(limit: &AnyLimit, divisor: f32, in_place: bool) -> Result<Self, String> {
        let max_norm = match &limit.rule {
            Rule::None => f32::INFINITY,
            Rule::Norm(Scalar::Value(max_norm)) => *max_norm,
            Rule::Norm(Scalar::Word(_)) => return Err(WORDS.into()),
            _ => return Err("a sharded step has a limit of one norm, or none".into()),
        };
        if limit.norm_type == NormType::Linf {
            return Err(LINF.into());
        }
        let value = |number: &Scalar| number.value().ok_or(WORDS);
        Ok(Self {
            norm_type: limit.norm_type,
            // -0 is 0.
            max_norm: max_norm + 0.0,
            // Without a limit it does not matter.
            eps: if max_norm == f32::INFINITY { 0.0 } else { value(&limit.eps)? + 0.0 },
            skip_above: limit.skip_above.as_ref().map_or(Ok(f32::INFINITY), value)?,
            divisor,
            in_place,
        })
    }

    /// A number for them, mixed, so that none is the mean of others.
    pub fn word(&self) -> u64 {
        let pair = |a: f32, b: f32| u64::from(a.to_bits()) << 32 | u64::from(b.to_bits());
        let words =
            [pair(self.max_norm, self.eps), pair(self.skip_above, self.divisor), u64::from(self.in_place)];
        let keys = [TAG, !TAG, TAG.rotate_left(17)];
        words.iter().zip(keys).fold(TAG, |mixed, (word, key)| {
            let mixed = mixed ^ word;
            (mixed ^ mixed >> 32 ^ key).wrapping_mul(key | 1)
        })
    }

    /// Whether a part with these formats can tell an overflow before it knows the others.
    pub fn check_formats(&self, set: &str, formats: impl Iterator<Item = Format>) -> Result<(), Error> {
        let max_norm = self.max_norm;
        for format in formats.filter(|_| self.in_place) {
            let most = most_norm(format);
            if max_norm.is_finite() && max_norm >= most {
                let why = format!(
                    "max_norm {max_norm} is above {most}, up to which no part of a sharded step has to ask the others \
                     whether {format} overflows; use f32::INFINITY for no limit"
                );
                return Err(Error::ShardLimit { set: set.into(), why });
            }
        }
        Ok(())
    }
}

pub(crate) const WORDS: &str = "ranks take numbers of the host, the same on all, and no words of a buffer";

/// A clipped gradient is no larger than the limit and two roundings. Below these no format overflows, and an overflow need
/// be looked for only where nothing is clipped: which each part can do before it knows the others.
fn most_norm(format: Format) -> f32 {
    match format {
        Format::F16 => 65504.0,
        Format::F32 | Format::Bf16 => 1.701_411_8e38,
    }
}
