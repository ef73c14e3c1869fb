//! From a ledger to the three numbers of a step: norm, coefficient, factor.

use core::cmp::Ordering;

use super::arithmetic as exact;
use super::norm_partials::{CELL_BITS, F16_L1_PLACE, F16_PLACE, LOWEST_L1_UNIT, LOWEST_UNIT, Ledger};
use crate::R24;

/// R24(1 / (`scale` * `divisor`)), the product exact; `None` unless both are positive and finite.
#[must_use]
pub fn inverse(scale: f32, divisor: f32) -> Option<R24> {
    let [scale, divisor] = [scale, divisor].map(|v| R24::from_f32(v).filter(|v| *v != R24::ZERO));
    let (scale, divisor) = (scale?, divisor?);
    // A product of 48 bits at most; 80 more make the quotient 33 bits long or more: room for 24 and the jammed bit.
    let product = u128::from(scale.significand) * u128::from(divisor.significand);
    let quotient = (1 << 80) / product;
    let lost = u128::from(quotient * product != 1 << 80);
    Some(exact::round(quotient | lost, -80 - scale.exponent - divisor.exponent))
}

/// `(v, e)` such that `v * 2^e` is the sum of four cells and of f16, for a ledger of squares. The cells are the highest that
/// is not zero, or that the sum of f16 reaches, but at least cell 0, and the three below it. Lower cells are ignored, and
/// so is what of the sum of f16 lies below the unit of the last.
///
/// The sum is exact while the highest cell is under 2^60, which takes 2^38 elements to reach. Above that it is
/// jammed, as [`exact`] explains, and its root still rounds like that of the exact sum.
#[must_use]
pub fn sum_of_squares(ledger: &Ledger) -> (u128, i32) {
    sum(ledger, LOWEST_UNIT, F16_PLACE)
}

fn sum(ledger: &Ledger, lowest_unit: i32, f16_place: u32) -> (u128, i32) {
    let Some(top) = ledger.top(f16_place) else {
        return (0, 0);
    };
    // Index 3 is cell 0. An index is under 27, so the cast keeps it.
    let low = top.max(3) - 3;
    let place = CELL_BITS * low as u32;
    let exponent = lowest_unit + place.cast_signed();
    let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|i| u128::from(ledger.cells[low + i]));
    // Below 2^88, since its leading bit is in the highest cell or below.
    let f16 = match place.checked_sub(f16_place) {
        Some(by) => ledger.f16.checked_shr(by).unwrap_or(0),
        // Only a sum of 0 lies so low.
        None => ledger.f16.checked_shl(f16_place - place).unwrap_or(0),
    };
    let lower = (c2 << (2 * CELL_BITS)) + (c1 << CELL_BITS) + c0 + f16;
    if c3 < 1 << 60 {
        return ((c3 << (3 * CELL_BITS)) + lower, exponent);
    }
    let lost = u128::from(lower & ((1 << CELL_BITS) - 1) != 0);
    let sum = (c3 << (2 * CELL_BITS)) + (lower >> CELL_BITS);
    (sum | lost, exponent + CELL_BITS.cast_signed())
}

/// The L2 norm of the unscaled gradients: R24(R24(sqrt(sum of squares)) * `inverse`).
///
/// `inverse` is [`inverse`] of the scale.
#[must_use]
pub fn norm(ledger: &Ledger, inverse: R24) -> R24 {
    let (sum, exponent) = sum_of_squares(ledger);
    exact::mul(exact::sqrt(sum, exponent), inverse)
}

/// The L1 norm of the unscaled gradients: R24(R24(sum of magnitudes) * `inverse`). As of squares, four cells and the sum of
/// f16 count.
///
/// `ledger` is one of magnitudes ([`l1_ledger`](super::norm_partials::l1_ledger)).
#[must_use]
pub fn l1_norm(ledger: &Ledger, inverse: R24) -> R24 {
    let (sum, exponent) = sum(ledger, LOWEST_L1_UNIT, F16_L1_PLACE);
    exact::mul(exact::round(sum, exponent), inverse)
}

/// The Linf norm of the unscaled gradients: R24(`largest` * `inverse`), `largest` being the largest magnitude
/// ([`largest_magnitude`](super::norm_partials::largest_magnitude)).
#[must_use]
pub fn linf_norm(largest: R24, inverse: R24) -> R24 {
    exact::mul(largest, inverse)
}

/// 1 if `norm <= max_norm` or there is no limit, else R24(`max_norm` / R24(`norm` + `eps`)). `max_norm`: infinity is no limit.
#[must_use]
pub fn coefficient(norm: R24, max_norm: f32, eps: f32) -> R24 {
    // An infinite limit has no R24, and is none.
    match (R24::from_f32(max_norm), R24::from_f32(eps)) {
        (Some(limit), Some(eps)) if exact::compare(norm, limit) == Ordering::Greater => {
            // A norm above a limit is not zero, so there always is a quotient.
            exact::div(limit, exact::add(norm, eps)).unwrap_or(R24::ONE)
        }
        _ => R24::ONE,
    }
}

/// What every element is multiplied by: R24(`coefficient` * `inverse`).
#[must_use]
pub fn factor(coefficient: R24, inverse: R24) -> R24 {
    exact::mul(coefficient, inverse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::norm_partials::CELLS;
    use crate::exact::testing::Lcg;

    fn ledger(cells: &[(usize, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for &(cell, sum) in cells {
            ledger.cells[cell] = sum;
        }
        ledger
    }

    fn r24(value: f32) -> R24 {
        R24::from_f32(value).unwrap()
    }

    #[test]
    fn only_four_cells_count() {
        // Without the cell that is ignored the sum is a half unit above 2^23, a tie of the root's rounding.
        let tie = (1u128 << 24) + 1;
        let square = (tie * tie) << 22;
        let digit = |j: u32| u64::try_from((square >> (22 * j)) & 0x3f_ffff).unwrap();
        let mut cells = vec![(10, digit(3)), (9, digit(2)), (8, digit(1)), (7, digit(0))];
        let root = |cells: &[(usize, u64)]| norm(&ledger(cells), R24::ONE).significand;
        assert_eq!(root(&cells), 1 << 23);
        cells.push((6, 0x3f_ffff));
        assert_eq!(root(&cells), 1 << 23);
        cells[3].1 += 1;
        assert_eq!(root(&cells), (1 << 23) + 1);
    }

    #[test]
    fn the_window_never_starts_below_the_lowest_cell() {
        // One subnormal of 2^-149 has the square 2^-298 and the root 2^-149.
        assert_eq!(norm(&ledger(&[(1, 1)]), R24::ONE), r24(f32::from_bits(1)));
        assert_eq!(norm(&Ledger::default(), R24::ONE), R24::ZERO);
        assert_eq!(sum_of_squares(&ledger(&[(0, 7)])), (7, -320));
    }

    #[test]
    fn magnitudes_add_up() {
        let sum = |bits: &[u32]| {
            let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
            l1_norm(&crate::exact::norm_partials::l1_ledger(crate::Format::F32, &bytes), R24::ONE)
        };
        assert_eq!(sum(&[]), R24::ZERO);
        assert_eq!(sum(&[1]), r24(f32::from_bits(1)));
        assert_eq!(sum(&[0x4040_0000, 0xc080_0000]), r24(7.0));
        assert_eq!(sum(&[0x7f7f_ffff; 2]), R24 { significand: 0x00ff_ffff, exponent: 105 });
        // 2^24 and three units below its last place: a tie that only the last element decides.
        let tie = [0x4b80_0000, 0x3f80_0000];
        assert_eq!(sum(&tie), r24(16_777_216.0));
        assert_eq!(sum(&[tie[0], tie[1], 1]), r24(16_777_216.0));
        assert_eq!(sum(&[tie[0], tie[1], 0x3380_0000]), r24(16_777_218.0));
    }

    /// The sum of f16 in units of the lowest of four cells, by the definition: a quotient, rounded down.
    #[test]
    fn the_sum_of_f16_is_cut_once() {
        let mut random = Lcg::new(12);
        for round in 0..20_000 {
            let (mut ledger, l1) = (Ledger::default(), round % 2 == 1);
            ledger.f16 =
                (u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())) >> random.below(128);
            let cell = random.below(27) as usize;
            ledger.cells[cell] = u64::from(random.below(3));
            let (unit, offset) = if l1 { (-24, -127) } else { (-48, -254) };
            let leading = ledger.f16.checked_ilog2().map(|bit| (bit.cast_signed() + unit - offset) / 22);
            let live = (ledger.cells[cell] != 0).then_some(cell as i32 - 3);
            let Some(top) = leading.max(live) else { continue };
            let lowest = top.max(0) - 3;
            let by = 22 * lowest + offset - unit;
            let cut = if by < 0 {
                ledger.f16.checked_shl(by.unsigned_abs()).unwrap_or(0)
            } else {
                ledger.f16.checked_shr(by.cast_unsigned()).unwrap_or(0)
            };
            let digit = match cell as i32 - 3 - lowest {
                above @ 0..=3 => u128::from(ledger.cells[cell]) << (22 * above),
                _ => 0,
            };
            let want = (cut + digit, 22 * lowest + offset);
            let got = if l1 { sum(&ledger, LOWEST_L1_UNIT, F16_L1_PLACE) } else { sum_of_squares(&ledger) };
            assert_eq!(got, want, "{ledger:?}");
        }
    }

    #[test]
    fn full_cells_lose_nothing_that_matters() {
        // 2^60 in cell 11, in units of 2^-12, is 2^48.
        for (sum, exponent) in [(1u64 << 58, 23), (1 << 60, 24), (1 << 62, 25)] {
            let want = R24 { significand: 1 << 23, exponent: exponent - 23 };
            assert_eq!(norm(&ledger(&[(14, sum)]), R24::ONE), want);
        }
        let (sum, exponent) = sum_of_squares(&Ledger { cells: [u64::MAX; CELLS], f16: 0 });
        // The exact sum, a 131-bit number, without its lowest 22 bits.
        let quotient = u128::from(u64::MAX) * ((1 << 44) + (1 << 22) + 1) + (u128::from(u64::MAX) >> 22);
        assert_eq!((sum, exponent), (quotient | 1, LOWEST_UNIT + 22 * 24));
    }

    #[test]
    fn the_coefficient_has_its_edges() {
        let (five, one) = (r24(5.0), R24::ONE);
        assert_eq!(coefficient(five, 5.0, 1e-6), one);
        assert_eq!(coefficient(five, f32::INFINITY, 1e-6), one);
        assert_eq!(coefficient(five, 0.0, 0.0), R24::ZERO);
        assert_eq!(coefficient(R24::ZERO, 0.0, 0.0), one);
        let ideal = R24 { significand: 13_421_773, exponent: -26 };
        assert_eq!(coefficient(five, 1.0, 0.0), ideal);
        let with_eps = R24 { significand: 13_421_770, exponent: -26 };
        assert_eq!(coefficient(five, 1.0, 1e-6), with_eps);
    }

    #[test]
    fn a_scale_has_an_inverse_outside_f32() {
        let power = |exponent| R24 { significand: 1 << 23, exponent: exponent - 23 };
        assert_eq!(inverse(f32::from_bits(1), 1.0).unwrap(), power(149));
        assert_eq!(inverse(2f32.powi(127), 1.0).unwrap(), power(-127));
    }
}
