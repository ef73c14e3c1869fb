//! The read pass: what one look at a tensor's bytes yields. Its counts, its sum of squares, its largest element.

use super::arithmetic::{self as exact, shift_right_even};
use super::element::{Layout, for_each};
use crate::format::Format;
use crate::{Nonfinite, R24};

/// Bits of a digit: the width of a cell of squares.
pub(crate) const CELL_BITS: u32 = 22;
/// Cells of a ledger.
pub(crate) const CELLS: usize = 27;
/// The exponent of the lowest cell's unit, 22 * -3 - 254.
pub(crate) const LOWEST_UNIT: i32 = -320;
/// The same for magnitudes, 22 * -3 - 127.
pub(crate) const LOWEST_L1_UNIT: i32 = -193;
/// The exponent of the last bit of an f16 element.
const F16_UNIT: i32 = -24;
/// The unit of a sum of f16 squares is that of the lowest cell times 2 to this.
pub(crate) const F16_PLACE: u32 = (2 * F16_UNIT - LOWEST_UNIT).cast_unsigned();
/// The same for magnitudes.
pub(crate) const F16_L1_PLACE: u32 = (F16_UNIT - LOWEST_L1_UNIT).cast_unsigned();

/// An exact sum of squares (L2) or of magnitudes (L1): of f32 and bf16 as one sum of 22-bit digits per cell, of f16, which
/// has few binades, as one integer.
///
/// `cells[i]` is cell `i - 3` of the cells -3 to 23. Of squares it counts units of `2^(22 i - 320)`, of magnitudes, which
/// reach no lower than cell -1 and no higher than cell 11, units of `2^(22 i - 193)`. The digits of one element
/// depend on that element alone, so ledgers of parts, merged in any order, are the ledger of the whole.
///
/// A cell has room for 2^42 elements. Beyond that it stays at `u64::MAX`. The sum of f16 has room for as many, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Ledger {
    /// The sum of digits of each cell, from cell -3 up to cell 23.
    pub cells: [u64; CELLS],
    /// The sum of f16: of squares in units of 2^-48, of magnitudes in units of 2^-24.
    pub f16: u128,
}

impl Ledger {
    /// Adds the square of one element. One that is NaN or infinite adds nothing.
    ///
    /// That of an f16 element is added whole. Any other is rounded to 24 bits, to nearest, ties to even, with an exponent without bounds, and written
    /// in digits of 22 bits. No bit of it falls below the cells, because every square is a multiple of 2^-298, which
    /// is 2^22 units of the lowest cell. Of a 16-bit element the upper half of `bits` is ignored.
    #[inline]
    pub fn add(&mut self, format: Format, bits: u32) {
        let layout = Layout::of(format);
        if layout.magnitude(bits) >= layout.infinity {
            return;
        }
        let (m, p) = layout.split(bits);
        let square = u64::from(m) * u64::from(m);
        if format == Format::F16 {
            self.add_f16(u128::from(square) << (2 * (p - F16_UNIT)));
            return;
        }
        let drop = (64 - square.leading_zeros()).saturating_sub(24);
        // p is -149 or more, so this is 22 or more.
        let place = (2 * p - LOWEST_UNIT).unsigned_abs() + drop;
        self.write(shift_right_even(square, drop), place);
    }

    /// Adds the magnitude of one element, exactly. One that is NaN or infinite adds nothing.
    #[inline]
    pub fn add_magnitude(&mut self, format: Format, bits: u32) {
        let layout = Layout::of(format);
        if layout.magnitude(bits) < layout.infinity {
            let (m, p) = layout.split(bits);
            if format == Format::F16 {
                self.add_f16(u128::from(m) << (p - F16_UNIT));
                return;
            }
            // p is -149 or more, so this is 44 or more.
            self.write(u64::from(m), (p - LOWEST_L1_UNIT).unsigned_abs());
        }
    }

    fn add_f16(&mut self, term: u128) {
        self.f16 = self.f16.saturating_add(term);
    }

    /// Adds `m * 2^place` units of the lowest cell, digit by digit.
    fn write(&mut self, m: u64, place: u32) {
        let (cell, offset) = (place / CELL_BITS, place % CELL_BITS);
        // 25 bits at most, moved by 21 at most: three digits.
        let mut rest = m << offset;
        for sum in self.cells.iter_mut().skip(cell as usize).take(3) {
            *sum = sum.saturating_add(rest & ((1 << CELL_BITS) - 1));
            rest >>= CELL_BITS;
        }
    }

    /// The index of the highest cell that is not zero, or of the one that the leading bit of the sum of f16 lies in, if
    /// that is higher. `f16_place`: [`F16_PLACE`] of squares, [`F16_L1_PLACE`] of magnitudes.
    pub(crate) fn top(&self, f16_place: u32) -> Option<usize> {
        let f16 = self.f16.checked_ilog2().map(|bit| ((bit + f16_place) / CELL_BITS) as usize);
        // `None` is less than any.
        f16.max(self.cells.iter().rposition(|&sum| sum != 0))
    }

    /// Adds the sums of `other`, cell by cell.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.cells.iter_mut().zip(other.cells) {
            *sum = sum.saturating_add(more);
        }
        self.add_f16(other.f16);
    }
}

/// The ledger of a tensor: the sum of its squares before unscaling. NaN and infinite elements add nothing.
#[must_use]
pub fn ledger(format: Format, bytes: &[u8]) -> Ledger {
    let mut ledger = Ledger::default();
    for_each(format, bytes, |bits| ledger.add(format, bits));
    ledger
}

/// The ledger of a tensor for the L1 norm: the sum of its magnitudes before unscaling. NaN and infinite elements add
/// nothing.
#[must_use]
pub fn l1_ledger(format: Format, bytes: &[u8]) -> Ledger {
    let mut ledger = Ledger::default();
    for_each(format, bytes, |bits| ledger.add_magnitude(format, bits));
    ledger
}

/// The value of [`largest`], if it is finite; else 0.
#[must_use]
pub fn largest_magnitude(format: Format, bytes: &[u8]) -> R24 {
    let layout = Layout::of(format);
    match largest(format, bytes) {
        bits if bits < layout.infinity => {
            let (m, p) = layout.split(bits);
            exact::round(u128::from(m), p)
        }
        _ => R24::ZERO,
    }
}

/// The NaN and infinite elements of a tensor: those whose exponent bits are all set.
#[must_use]
pub fn census(format: Format, bytes: &[u8]) -> Nonfinite {
    let layout = Layout::of(format);
    let mut found = Nonfinite::default();
    let mut index = 0;
    for_each(format, bytes, |bits| {
        if layout.magnitude(bits) >= layout.infinity {
            found.first.get_or_insert(index);
            let count = if layout.magnitude(bits) > layout.infinity {
                &mut found.nan
            } else if bits & layout.sign == 0 {
                &mut found.pos_inf
            } else {
                &mut found.neg_inf
            };
            *count += 1;
        }
        index += 1;
    });
    found
}

/// The bits of the largest magnitude in a tensor, its sign cleared; 0 if there are no elements.
///
/// Magnitudes order like their bits, with infinity above the finite ones and NaN above infinity.
#[must_use]
pub fn largest(format: Format, bytes: &[u8]) -> u32 {
    let layout = Layout::of(format);
    let mut largest = 0;
    for_each(format, bytes, |bits| {
        largest = layout.magnitude(bits).max(largest);
    });
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::testing::Lcg;

    fn one(format: Format, bits: u32) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add(format, bits);
        ledger
    }

    /// The cells by the definition: the square over the unit of the third cell below the element's own.
    fn by_definition(bits: u32) -> Ledger {
        let magnitude = bits & 0x7fff_ffff;
        let own = (magnitude >> 23) / 11;
        let (m, p) = Layout::of(Format::F32).split(bits);
        let q = exact::round(u128::from(m) * u128::from(m), 2 * p);
        if q == R24::ZERO {
            return Ledger::default();
        }
        let shift = q.exponent - (LOWEST_UNIT + 22 * own as i32);
        let n = match shift {
            0.. => u128::from(q.significand) << shift,
            _ => u128::from(q.significand) >> -shift,
        };
        let mut ledger = Ledger::default();
        for j in 0..4 {
            ledger.cells[own as usize + j] = u64::try_from((n >> (22 * j)) & 0x3f_ffff).unwrap();
        }
        ledger
    }

    #[test]
    fn digits_follow_the_definition() {
        let mut random = Lcg::new(4);
        for special in [0, 1, 2, 3, 0xb_504f, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff] {
            assert_eq!(one(Format::F32, special), by_definition(special), "{special:08x}");
        }
        for _ in 0..300_000 {
            let bits = random.next_u32() >> random.below(10);
            if bits & 0x7f80_0000 != 0x7f80_0000 {
                assert_eq!(one(Format::F32, bits), by_definition(bits), "{bits:08x}");
            }
        }
    }

    #[test]
    fn bf16_elements_have_the_ledger_of_their_f32_value() {
        for bits in 0..0x1_0000 {
            assert_eq!(one(Format::Bf16, bits), one(Format::F32, bits << 16), "{bits:04x}");
        }
    }

    /// The value of every f16 element, squared and not, in units of the sums; exact in f64, since both are below 2^80 and
    /// have 22 bits.
    #[test]
    fn f16_elements_are_added_whole() {
        let mut all = Ledger::default();
        let mut squares = 0u128;
        for bits in 0..0x1_0000u32 {
            let (field, fraction) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff));
            let units = match field {
                0 => fraction,
                31 => 0.0,
                _ => (fraction + 1024.0) * 2f64.powi(field as i32 - 1),
            };
            let square = one(Format::F16, bits);
            assert_eq!((square.f16 as f64, square.cells), (units * units, [0; CELLS]), "{bits:04x}");
            let mut magnitude = Ledger::default();
            magnitude.add_magnitude(Format::F16, bits);
            assert_eq!((magnitude.f16 as f64, magnitude.cells), (units, [0; CELLS]), "{bits:04x}");
            all.merge(&square);
            squares += (units as u128).pow(2);
        }
        assert_eq!(all.f16, squares);
        all.f16 = u128::MAX;
        all.merge(&all.clone());
        assert_eq!(all.f16, u128::MAX);
    }

    /// (floor(log2 S) + 254) / 22 of squares and (floor(log2 S) + 127) / 22 of magnitudes, rounded down, is cell -3 + i.
    #[test]
    fn the_top_is_the_leading_bit_where_that_is_higher() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.top(F16_PLACE), None);
        for bit in 0..128 {
            ledger.f16 = 1 << bit | 1;
            let (squares, magnitudes) = ((bit + 254 - 48) / 22 + 3, (bit + 127 - 24) / 22 + 3);
            for cell in 0..CELLS {
                ledger.cells = [0; CELLS];
                ledger.cells[cell] = 1;
                assert_eq!(ledger.top(F16_PLACE), Some(cell.max(squares)));
                assert_eq!(ledger.top(F16_L1_PLACE), Some(cell.max(magnitudes)));
            }
        }
    }

    #[test]
    fn cells_stand_where_the_definition_puts_them() {
        // 1 is 2^12 units of cell 11, whose unit is 2^-12; the square of f32::MAX is near the end of cell 23.
        let place = |bits| one(Format::F32, bits).cells.iter().rposition(|&d| d != 0).map(|i| i + 1);
        assert_eq!(one(Format::F32, 0x3f80_0000).cells[11 + 3], 1 << 12);
        assert_eq!(place(0x7f7f_ffff), Some(23 + 3 + 1));
        assert_eq!(one(Format::F32, 1).cells[1], 1);
        assert_eq!(place(0), None);
        assert_eq!(place(0x7f80_0000), None);
    }

    /// The magnitude over the unit of the lowest of its digits, which loses nothing.
    #[test]
    fn magnitudes_are_whole() {
        let mut random = Lcg::new(11);
        let specials = [0, 1, 2, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff];
        for round in 0..300_000 {
            let bits = specials.get(round).copied().unwrap_or(random.next_u32() >> random.below(10));
            if bits & 0x7f80_0000 == 0x7f80_0000 {
                continue;
            }
            let mut ledger = Ledger::default();
            ledger.add_magnitude(Format::F32, bits);
            let own = ((bits & 0x7fff_ffff) >> 23) as usize / 22;
            let mut value = 0.0;
            for (i, &digits) in ledger.cells.iter().enumerate() {
                assert!(digits == 0 || (own + 1..=own + 3).contains(&i), "{bits:08x}: digits in {i}");
                assert!(digits < 1 << 22);
                value += digits as f64 * 2f64.powi(22 * i as i32 - 193);
            }
            assert_eq!(value, f64::from(f32::from_bits(bits).abs()), "{bits:08x}");
        }
        let mut none = Ledger::default();
        none.add_magnitude(Format::F32, 0x7f80_0000);
        none.add_magnitude(Format::F32, 0xffc0_0000);
        assert_eq!(none, Ledger::default());
    }

    #[test]
    fn cuts_and_order_do_not_matter() {
        let mut random = Lcg::new(5);
        let bytes: Vec<u8> =
            (0..4000).flat_map(|_| (random.next_u32() & 0xbfff_ffff).to_le_bytes()).collect();
        let whole = ledger(Format::F32, &bytes);
        let (a, b) = bytes.split_at(4 * 1234);
        let mut merged = ledger(Format::F32, b);
        merged.merge(&ledger(Format::F32, a));
        assert_eq!(merged, whole);
        merged.cells[0] = u64::MAX;
        merged.merge(&Ledger { cells: [1; CELLS], f16: 0 });
        assert_eq!(merged.cells[0], u64::MAX);
    }

    #[test]
    fn the_census_tells_apart_what_it_counts() {
        let words = |w: &[u32]| w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let bytes = words(&[0x7f7f_ffff, 0xff80_0000, 0x7f80_0000, 0x7f80_0001, 0xffff_ffff, 0x8000_0000]);
        let want = Nonfinite { nan: 2, pos_inf: 1, neg_inf: 1, first: Some(1) };
        assert_eq!(census(Format::F32, &bytes), want);
        assert_eq!(largest(Format::F32, &bytes), 0x7fff_ffff);
        let halves = words(&[0x7c01_7bff, 0xfc00_7c00]);
        let want = Nonfinite { nan: 1, pos_inf: 1, neg_inf: 1, first: Some(1) };
        assert_eq!(census(Format::F16, &halves), want);
        assert_eq!(census(Format::Bf16, &halves), Nonfinite::default());
        assert_eq!(census(Format::F32, &[]), Nonfinite::default());
        assert_eq!(largest(Format::F32, &[]), 0);
    }
}
