//! The mergeable sums of a part of the gradients, for sharded runs.

#[cfg(feature = "serde")]
mod form;
mod terms;
mod words;

pub(crate) use terms::{Terms, WORDS};

use crate::exact::norm_partials::{F16_L1_PLACE, F16_PLACE, Ledger as Sums};
use crate::exact::{arithmetic, norm_finish};
use crate::{Error, LossScale, NormType, R24};

/// Cells of a ledger.
pub(crate) const CELLS: usize = 27;
/// Where the cells lie among the words.
pub(crate) const CELLS_AT: usize = 12;
/// Where the sum of f16 lies, and its words: 32 bits in each, lowest first, so that sums of words lose no carry.
pub(crate) const F16_AT: usize = CELLS_AT + CELLS;
pub(crate) const F16_WORDS: usize = 4;
/// "gradclip", and what the words mean: a number for each change of that.
pub(crate) const TAG: u64 = u64::from_le_bytes(*b"gradclip").wrapping_add(2 << 32);
/// A cell has room for the digits of this many elements.
const MAX_ELEMENTS: u64 = 1 << 42;
const MAX_PARTS: u64 = 1 << 32;

/// What one read pass found in a part of the gradients: exact sums that add up to those of the whole.
///
/// A sharded run measures each part where it lies ([`GradSet::record_ledger`](crate::GradSet::record_ledger)), adds up the
/// ledgers of all parts, and gives every part the sum
/// ([`GradSet::record_merged`](crate::GradSet::record_merged)). All parts then take the same decision, on every bit that
/// of one device that holds everything, however the gradients were cut.
///
/// A ledger holds the loss scale, the limit (as a hash), 27 sums of 22-bit digits, the sum of f16 (see
/// [`reference`](mod@crate::reference)) and the counts of what is not finite. It travels as [words](Ledger::to_words), whose
/// plain sum, element by element and modulo 2^64, is the merged ledger: one all-reduce of u64. Or as
/// [bytes](Ledger::to_bytes), or as a serde type with the feature `serde`, to be [merged](Ledger::merge) where they arrive.
/// Every form carries a version and a checksum that survive the sum; what was damaged, or means something else, is refused.
///
/// What no ledger can tell: whether every part is in it once, of which [`Ledger::complete`] checks the number, and whether
/// all are of the same step. A part whose ledger is refused stops while the others go on, so an error on one rank has to
/// stop all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "form::Form", try_from = "form::Form")
)]
pub struct Ledger {
    norm_type: NormType,
    scale: u32,
    divisor: u32,
    parts: u64,
    elements: u64,
    /// NaN, +inf, -inf.
    nonfinite: [u64; 3],
    overflowing: u64,
    /// The sum of `limit_word` over the parts.
    limit: u64,
    sums: Sums,
}

/// What a read pass found, before it is a ledger.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub terms: Terms,
    pub scale: LossScale,
    pub elements: u64,
    pub nonfinite: [u64; 3],
    /// Whether a gradient divided by the scale would not fit its format.
    pub overflow: bool,
    pub sums: Sums,
}

impl Ledger {
    /// Words of [`Ledger::to_words`].
    pub const WORDS: usize = F16_AT + F16_WORDS + 1;
    /// Bytes of [`Ledger::to_bytes`].
    pub const BYTES: usize = 8 * Self::WORDS;

    pub(crate) fn of_part(part: Part) -> Self {
        Self {
            norm_type: part.terms.norm_type,
            scale: part.scale.get().to_bits(),
            divisor: part.terms.divisor.to_bits(),
            parts: 1,
            elements: part.elements,
            nonfinite: part.nonfinite,
            overflowing: u64::from(part.overflow),
            limit: part.terms.word(),
            sums: part.sums,
        }
        .counted()
    }

    /// Without what does not count: a device need not have kept it, so it depends on how the work was cut. The cells that
    /// count hold the digits of every element; where something is nonfinite, none does.
    fn counted(mut self) -> Self {
        if self.found_inf() {
            self.sums = Sums::default();
            self.overflowing = 0;
            return self;
        }
        let lowest = self.lowest();
        self.sums.cells[..lowest].fill(0);
        self
    }

    /// The lowest cell that counts. The sum of f16 counts whole: what the norm drops of it may yet add up.
    fn lowest(&self) -> usize {
        let place = match self.norm_type {
            NormType::L1 => F16_L1_PLACE,
            NormType::L2 | NormType::Linf => F16_PLACE,
        };
        self.sums.top(place).unwrap_or(0).saturating_sub(3)
    }

    /// What the sum of f16 cannot exceed with so many elements, each at most 65504 units of 2^-24 times 2^24, or the square
    /// of that.
    fn most_f16(norm_type: NormType, elements: u64) -> u128 {
        let each = 65504 << 24;
        u128::from(elements) * if norm_type == NormType::L1 { each } else { each * each }
    }

    /// Adds the sums of another part, or of several.
    ///
    /// # Errors
    /// [`Error::Ledger`] if it was measured with another loss scale, for another norm or for another limit, or if there
    /// would be 2^42 elements or more, or more than 2^32 parts. `self` then stays as it was.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        if self.scale != other.scale {
            let [a, b] = [self.scale, other.scale].map(f32::from_bits);
            return refuse(format!("its parts were measured with different loss scales, {a} and {b}"));
        }
        if self.divisor != other.divisor {
            let [a, b] = [self.divisor, other.divisor].map(f32::from_bits);
            return refuse(format!("its parts were measured with different divisors, {a} and {b}"));
        }
        if self.norm_type != other.norm_type {
            let (a, b) = (self.norm_type, other.norm_type);
            return refuse(format!("its parts were measured for different norms, {a} and {b}"));
        }
        if self.limit.wrapping_mul(other.parts) != other.limit.wrapping_mul(self.parts) {
            return refuse("its parts were measured for different limits".into());
        }
        let mut words = self.to_words();
        for (word, more) in words.iter_mut().zip(other.to_words()) {
            *word = word.wrapping_add(more);
        }
        *self = Self::from_words(&words)?;
        Ok(())
    }

    /// The ledger, if it adds up as many as there are: a rank that forgot to exchange its own would else clip by the norm of
    /// its part.
    ///
    /// # Errors
    /// [`Error::Ledger`] if it adds up another number.
    pub fn complete(self, parts: u64) -> Result<Self, Error> {
        if self.parts != parts {
            return refuse(format!(
                "it adds up {} parts, not {parts}; merge the ledger of every part, once",
                self.parts
            ));
        }
        Ok(self)
    }

    /// The norm that was measured.
    #[must_use]
    pub fn norm_type(&self) -> NormType {
        self.norm_type
    }

    /// The loss scale of the gradients.
    #[must_use]
    pub fn scale(&self) -> f32 {
        f32::from_bits(self.scale)
    }

    /// What the gradients are divided by beside the loss scale.
    #[must_use]
    pub fn divisor(&self) -> f32 {
        f32::from_bits(self.divisor)
    }

    /// How many ledgers were added up.
    #[must_use]
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// Elements of all tensors of all parts.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// How many of them are NaN, +infinity and -infinity.
    #[must_use]
    pub fn nonfinite(&self) -> [u64; 3] {
        self.nonfinite
    }

    /// Whether a gradient of some part is NaN or infinite.
    #[must_use]
    pub fn found_inf(&self) -> bool {
        self.nonfinite != [0; 3]
    }

    /// In how many parts some gradient, divided by the loss scale, would not fit its format. 0 if something is nonfinite.
    #[must_use]
    pub fn overflowing(&self) -> u64 {
        self.overflowing
    }

    /// The sums of f32 and bf16: `cells[i]` counts units of `2^(22 i - 320)` for L2 and of `2^(22 i - 193)` for L1. Only the
    /// highest that is not zero, or that the sum of f16 reaches, and the three below it are kept, and none if something is
    /// nonfinite.
    #[must_use]
    pub fn cells(&self) -> &[u64; CELLS] {
        &self.sums.cells
    }

    /// The sum of f16, in units of 2^-48 for L2 and of 2^-24 for L1; 0 if something is nonfinite.
    #[must_use]
    pub fn f16(&self) -> u128 {
        self.sums.f16
    }

    /// The norm of the unscaled gradients of all parts; `None` if one is NaN or infinite.
    #[must_use]
    pub fn total_norm(&self) -> Option<R24> {
        let inverse = norm_finish::inverse(self.scale(), self.divisor())?;
        (!self.found_inf()).then(|| arithmetic::mul(self.norm_scaled(), inverse))
    }

    /// The norm before the division by the scale.
    pub(crate) fn norm_scaled(&self) -> R24 {
        match self.norm_type {
            NormType::L1 => norm_finish::l1_norm(&self.sums, R24::ONE),
            NormType::L2 | NormType::Linf => norm_finish::norm(&self.sums, R24::ONE),
        }
    }

    /// Whether `part` can be one of those that were added up: whether what is left without it can be a sum of parts.
    pub(crate) fn check_holds(&self, part: &Self) -> Result<(), Error> {
        if (self.scale, self.divisor) != (part.scale, part.divisor) || self.norm_type != part.norm_type {
            return refuse(
                "it was measured with another loss scale or for another norm than this set's own".into(),
            );
        }
        self.check_limit(part.limit.wrapping_mul(self.parts), part.parts)?;
        if self.can_hold(part) {
            return Ok(());
        }
        refuse(
            "it does not contain this set's own; merge the ledgers of all parts, from the same step".into(),
        )
    }

    /// The sum of the ledgers of one part that lies in several sets.
    pub(crate) fn one_part(ledgers: Vec<Self>) -> Result<Self, Error> {
        let mut ledgers = ledgers.into_iter();
        let Some(mut sum) = ledgers.next() else { return refuse("there is none".into()) };
        for ledger in ledgers {
            sum.merge(&ledger)?;
        }
        Ok(sum)
    }

    /// Whether a step with this ledger is skipped.
    pub(crate) fn skips(&self, terms: &Terms) -> bool {
        let Some(norm) = self.total_norm() else { return true };
        let above =
            R24::from_f32(terms.skip_above).is_some_and(|most| arithmetic::compare(norm, most).is_gt());
        let clipped = norm_finish::coefficient(norm, terms.max_norm, terms.eps) != R24::ONE;
        above || (self.overflowing > 0 && !clipped)
    }

    /// Whether every part was measured for these.
    pub(crate) fn check_terms(&self, terms: &Terms) -> Result<(), Error> {
        self.check_limit(terms.word().wrapping_mul(self.parts), 1)
    }

    fn check_limit(&self, expected: u64, parts: u64) -> Result<(), Error> {
        if self.limit.wrapping_mul(parts) != expected {
            return refuse(
                "one of its parts was measured for another limit; give all the same max_norm, eps, threshold, divisor and mode".into(),
            );
        }
        Ok(())
    }

    fn can_hold(&self, part: &Self) -> bool {
        let (Some(parts), Some(elements)) =
            (self.parts.checked_sub(part.parts), self.elements.checked_sub(part.elements))
        else {
            return false;
        };
        if parts == 0 {
            return self == part;
        }
        let counts = self.nonfinite.iter().zip(part.nonfinite);
        let counts = counts.map(|(all, own)| all.checked_sub(own)).sum::<Option<u64>>();
        if counts.is_none_or(|n| n > elements) {
            return false;
        }
        if self.found_inf() {
            return true;
        }
        let overflowing = self.overflowing.checked_sub(part.overflowing);
        // Cells that count here, which those of a sum do for all its parts.
        let mut cells = self.sums.cells.iter().zip(part.sums.cells).skip(self.lowest());
        let f16 = self.sums.f16.checked_sub(part.sums.f16);
        overflowing.is_some_and(|n| n <= parts)
            && f16.is_some_and(|rest| rest <= Self::most_f16(self.norm_type, elements))
            && cells.all(|(all, own)| all.checked_sub(own).is_some_and(|rest| rest <= elements << 22))
    }
}

pub(crate) fn refuse<T>(what: String) -> Result<T, Error> {
    Err(Error::Ledger { what })
}

#[cfg(test)]
mod tests;
