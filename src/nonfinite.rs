//! What was not finite in one tensor.

use std::fmt;

/// Counts of the nonfinite elements of one tensor, and where the first of them is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Nonfinite {
    /// Elements that are NaN, of either sign, quiet or signalling.
    pub nan: u64,
    /// Elements that are +infinity.
    pub pos_inf: u64,
    /// Elements that are -infinity.
    pub neg_inf: u64,
    /// Index, in elements from the start of the tensor, of the first nonfinite element; `None` if all are finite.
    pub first: Option<u64>,
}

impl fmt::Display for Nonfinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} NaN, {} +inf, {} -inf", self.nan, self.pos_inf, self.neg_inf)?;
        self.first.map_or(Ok(()), |first| write!(f, ", first at {first}"))
    }
}
