//! The mergeable sums of a part of the gradients, for sharded runs.

#[cfg(feature = "serde")]
mod form;
mod terms;

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

    /// The ledger as words. The sum of such words of all parts, modulo 2^64 and word by word, is what
    /// [`Ledger::from_words`] takes for the merged ledger. A rank without a part adds zeros.
    #[must_use]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[0] = tag(self.norm_type).wrapping_mul(self.parts);
        words[1] = self.parts;
        words[2] = u64::from(self.scale).wrapping_mul(self.parts);
        words[3] = self.elements;
        words[4..7].copy_from_slice(&self.nonfinite);
        words[7] = self.overflowing;
        // With the sum of the scales it tells whether all are equal.
        words[8] = squared(self.scale).wrapping_mul(self.parts);
        words[9] = self.limit;
        words[10] = u64::from(self.divisor).wrapping_mul(self.parts);
        words[11] = squared(self.divisor).wrapping_mul(self.parts);
        words[CELLS_AT..][..CELLS].copy_from_slice(&self.sums.cells);
        words[F16_AT..][..F16_WORDS].copy_from_slice(&f16_words(self.sums.f16));
        words[Self::WORDS - 1] = checksum(&words[..Self::WORDS - 1]);
        words
    }

    /// The ledger of these words, or of a sum of such.
    ///
    /// # Errors
    /// [`Error::Ledger`] if there are not [`Ledger::WORDS`] of them, if they were damaged, are of a version in which they
    /// mean something else, or add up parts with different loss scales or norms, or more than 2^42 elements.
    pub fn from_words(words: &[u64]) -> Result<Self, Error> {
        let Ok(words) = <[u64; Self::WORDS]>::try_from(words) else {
            return refuse(format!("it has {} words, not {}", words.len(), Self::WORDS));
        };
        let (content, check) = words.split_at(Self::WORDS - 1);
        let (parts, elements, overflowing) = (words[1], words[3], words[7]);
        if parts == 0 || parts > MAX_PARTS {
            return refuse(format!("it says that it adds up {parts} parts, of 1 to 2^32; is it one at all?"));
        }
        let norm_type = [NormType::L1, NormType::L2]
            .into_iter()
            .find(|&norm_type| words[0] == tag(norm_type).wrapping_mul(parts));
        let Some(norm_type) = norm_type else {
            return refuse(
                "its first word is not that of this version's ledgers, or its parts were measured for different norms; \
                 let all ranks run one version and one norm"
                    .into(),
            );
        };
        if check != [checksum(content)] {
            return refuse("its checksum is wrong; it was damaged on the way".into());
        }
        let Some(scale) = mean([words[2], words[8]], parts) else {
            return refuse("its parts were measured with different loss scales".into());
        };
        let Some(divisor) = mean([words[10], words[11]], parts) else {
            return refuse("its parts were measured with different divisors".into());
        };
        if elements >= MAX_ELEMENTS {
            return refuse(format!("it adds up {elements} elements; its sums hold those of fewer than 2^42"));
        }
        let nonfinite = [words[4], words[5], words[6]];
        let mut cells = [0; CELLS];
        cells.copy_from_slice(&words[CELLS_AT..][..CELLS]);
        let counted = nonfinite.iter().try_fold(0u64, |sum, &n| sum.checked_add(n));
        let most = elements << 22;
        let f16 = f16_of(&words[F16_AT..][..F16_WORDS], parts);
        let f16 = f16.filter(|&sum| sum <= Self::most_f16(norm_type, elements));
        let fits = counted.is_some_and(|n| n <= elements)
            && overflowing <= parts
            && cells.iter().all(|&sum| sum <= most);
        let Some(f16) = f16.filter(|_| fits) else {
            return refuse(format!("its sums are too large for {elements} elements in {parts} parts"));
        };
        let sums = Sums { cells, f16 };
        let ledger = Self {
            norm_type,
            scale,
            divisor,
            parts,
            elements,
            nonfinite,
            overflowing,
            limit: words[9],
            sums,
        };
        Ok(ledger.counted())
    }

    /// The words in order, each little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The ledger of these bytes.
    ///
    /// # Errors
    /// As [`Ledger::from_words`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() != Self::BYTES {
            return refuse(format!("it has {} bytes, not {}", bytes.len(), Self::BYTES));
        }
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|b| b.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
            .collect();
        Self::from_words(&words)
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

/// One part's share of the first word.
pub(crate) fn tag(norm_type: NormType) -> u64 {
    let norm = match norm_type {
        NormType::Linf => 0,
        NormType::L1 => 1,
        NormType::L2 => 2,
    };
    TAG.wrapping_add(norm << 40)
}

/// The sum of f16 as words of a ledger.
fn f16_words(sum: u128) -> [u64; F16_WORDS] {
    [0, 32, 64, 96].map(|bit| (sum >> bit) as u64 & u64::from(u32::MAX))
}

/// The sum of f16, from sums of so many words; `None` if it has more than 128 bits, or no such words add up to these.
fn f16_of(words: &[u64], parts: u64) -> Option<u128> {
    let most = u128::from(parts) * u128::from(u32::MAX);
    words.iter().rev().try_fold(0u128, |sum, &word| {
        let word = u128::from(word);
        sum.checked_mul(1 << 32)?.checked_add(word).filter(|_| word <= most)
    })
}

pub(crate) fn squared(bits: u32) -> u64 {
    u64::from(bits).wrapping_mul(u64::from(bits))
}

/// What all parts said alike: a positive, finite f32, from the sum of its bits and the sum of their squares.
fn mean([sum, squares]: [u64; 2], parts: u64) -> Option<u32> {
    let bits = u32::try_from(sum / parts).ok().filter(|_| sum % parts == 0)?;
    let all_alike = squares == squared(bits).wrapping_mul(parts);
    (all_alike && LossScale::new(f32::from_bits(bits)).is_ok()).then_some(bits)
}

/// A linear sum, so that the sum of checksums is the checksum of the sum. Odd factors: no change of one word goes unseen.
fn checksum(words: &[u64]) -> u64 {
    let mut factor = TAG;
    words.iter().fold(0u64, |sum, word| {
        // Knuth's MMIX multiplier and increment.
        factor = factor.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sum.wrapping_add(word.wrapping_mul(factor | 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Limit};

    fn terms() -> Terms {
        Terms::new(&Limit::none().any(), 1.0, true).unwrap()
    }

    fn ledger() -> Ledger {
        let mut sums = Sums::default();
        sums.add(Format::F32, 0x4040_0000);
        sums.add(Format::F16, 0x7bff);
        sums.add(Format::F16, 0x0001);
        let scale = LossScale::new(2.0).unwrap();
        let (nonfinite, overflow) = ([0; 3], false);
        Ledger::of_part(Part { terms: terms(), scale, elements: 3, nonfinite, overflow, sums })
    }

    fn with(place: usize, value: u64) -> Result<Ledger, String> {
        let mut words = ledger().to_words();
        words[place] = value;
        words[43] = checksum(&words[..43]);
        Ledger::from_words(&words).map_err(|e| e.to_string())
    }

    /// Another process reads these: what they mean must not change under one version.
    #[test]
    fn the_words_of_version_2() {
        let mut words = [0; Ledger::WORDS];
        words[0] = u64::from_le_bytes(*b"gradclip") + (2 << 32) + (2 << 40);
        words[1] = 1;
        words[2] = 0x4000_0000;
        words[3] = 3;
        words[8] = 0x4000_0000 * 0x4000_0000;
        words[9] = 2_553_027_432_621_583_639;
        words[10] = 0x3f80_0000;
        words[11] = 0x3f80_0000 * 0x3f80_0000;
        words[12 + 14] = 9 << 12;
        // 65504^2 * 2^48 + 1
        words[39..43].copy_from_slice(&[1, 0x0400_0000, 0xffc0, 0]);
        words[43] = 3_926_688_594_021_241_869;
        assert_eq!(ledger().to_words(), words);
    }

    #[test]
    fn another_version_is_refused() {
        let mut words = ledger().to_words();
        for version in [1, 3] {
            words[0] = tag(NormType::L2) - (2 << 32) + (version << 32);
            words[43] = checksum(&words[..43]);
            let Err(Error::Ledger { what }) = Ledger::from_words(&words) else { panic!("taken") };
            assert!(what.contains("this version's"), "{what}");
        }
        // Also where one of two ranks runs it.
        let old = ledger().to_words();
        let sum: Vec<u64> = words.iter().zip(old).map(|(a, b)| a.wrapping_add(b)).collect();
        assert!(Ledger::from_words(&sum).is_err());
    }

    /// As many as there can be, of the largest words: no word of a sum overflows, and the sum of f16 comes back.
    #[test]
    fn words_of_f16_have_room_for_every_part() {
        let mut words = ledger().to_words().map(|word| word.wrapping_mul(MAX_PARTS - 1));
        let most = (MAX_PARTS - 1) * u64::from(u32::MAX);
        words[3] = MAX_ELEMENTS - 1;
        words[39..43].copy_from_slice(&[most, most, 7 << 32, 1 << 20]);
        words[43] = checksum(&words[..43]);
        let ledger = Ledger::from_words(&words).unwrap();
        let most = u128::from(most);
        assert_eq!(ledger.f16(), (1 << 116) + (7 << 96) + (most << 32) + most);
        assert_eq!(f16_of(&[u64::from(u32::MAX) << 32; 4], MAX_PARTS), None);
        assert_eq!(f16_of(&[0, 0, 0, u64::from(u32::MAX)], 1), Some(u128::from(u32::MAX) << 96));
    }

    /// What is below the kept cells counts nevertheless: a later part may carry it up.
    #[test]
    fn the_sum_of_f16_is_never_cut() {
        let of = |values: &[(Format, u32)]| {
            let mut sums = Sums::default();
            values.iter().for_each(|&(format, bits)| sums.add(format, bits));
            let (nonfinite, overflow, elements) = ([0; 3], false, values.len() as u64);
            Ledger::of_part(Part {
                terms: terms(),
                scale: LossScale::ONE,
                elements,
                nonfinite,
                overflow,
                sums,
            })
        };
        let mut sum = of(&[(Format::F32, 0x7f7f_ffff), (Format::F16, 1)]);
        sum.merge(&of(&[(Format::F16, 3)])).unwrap();
        assert_eq!(sum.f16(), 10);
        // And f16 says which cells count, as f32 does.
        let mut low = of(&[(Format::F32, 0x2000_0000)]);
        assert_ne!(low.cells(), &[0; CELLS]);
        low.merge(&of(&[(Format::F16, 0x7bff)])).unwrap();
        assert_eq!(low.cells(), &[0; CELLS]);
        assert!(low.check_holds(&of(&[(Format::F32, 0x2000_0000)])).is_ok());
        assert!(low.check_holds(&of(&[(Format::F16, 0x7bff)])).is_ok());
        assert!(low.check_holds(&of(&[(Format::F16, 0x7bff), (Format::F16, 1)])).is_err());
    }

    #[test]
    fn sums_beyond_their_room_are_refused() {
        assert!(with(3, 1 << 20).is_ok());
        for (place, value, why) in [
            (1, 0, "0 parts"),
            (1, 1 << 33, "parts"),
            (3, 1 << 42, "2^42"),
            (3, 0, "too large for 0 elements"),
            (4, 4, "too large"),
            (5, u64::MAX, "too large"),
            (7, 2, "too large"),
            (10, 0, "different divisors"),
            (11, 0, "different divisors"),
            (12, 1 << 24, "too large"),
            // One part has no more than 32 bits in a word, and three elements no more than three squares.
            (39, 1 << 32, "too large"),
            (40, u64::MAX, "too large"),
            (41, 0xffff_ffff, "too large"),
            (42, 1, "too large"),
            (42, 1 << 63, "too large"),
        ] {
            let error = with(place, value).expect_err(why);
            assert!(error.contains(why), "word {place}: {error}");
        }
        let mut full = ledger();
        full.elements = MAX_ELEMENTS - 1;
        let before = full.clone();
        assert!(full.merge(&ledger()).is_err());
        assert_eq!(full, before);
    }
}
