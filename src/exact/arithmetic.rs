//! Arithmetic on [`R24`]: each operation rounds its exact result once, to 24 bits, to nearest, ties to even.
//!
//! Exponents have no bounds in the definition. Here they saturate at the ends of `i32`, which no value of a step
//! comes near. Significands that are not normalised are taken at their value; every result is normalised.
//!
//! Results that do not fit an integer are *jammed*: cut off, with the last bit set if anything was lost. The
//! rounding that follows sees the same number, because what decides it, a multiple of half a unit in the last of
//! 24 places, is a multiple of 2 in the jammed integer, and no such number lies between the exact value and the
//! jammed one. Two spare bits below the significand are enough for that.

use core::cmp::Ordering;

use crate::r24::R24;

/// `value / 2^shift`, rounded to nearest, ties to even.
#[must_use]
pub const fn shift_right_even(value: u64, shift: u32) -> u64 {
    match shift {
        0 => value,
        1..=63 => {
            let (kept, lost, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
            kept + (lost > half || lost == half && kept & 1 == 1) as u64
        }
        64 => (value > 1 << 63) as u64,
        _ => 0,
    }
}

/// R24(`mantissa * 2^exponent`).
#[must_use]
pub fn round(mantissa: u128, exponent: i32) -> R24 {
    let width = 128 - mantissa.leading_zeros();
    let jam = width.saturating_sub(64);
    let lost = mantissa & ((1 << jam) - 1) != 0;
    // At most 64 bits are left, so the cast keeps them all.
    let kept = (mantissa >> jam) as u64 | u64::from(lost);
    let exponent = exponent.saturating_add_unsigned(jam);
    let width = width - jam;
    let (significand, exponent) = match width {
        0 => return R24::ZERO,
        1..=24 => (kept << (24 - width), exponent.saturating_sub_unsigned(24 - width)),
        _ => {
            let shift = width - 24;
            let rounded = shift_right_even(kept, shift);
            // Rounding up to 2^24 leaves an even number: halving it is exact.
            let carry = u32::from(rounded == 1 << 24);
            (rounded >> carry, exponent.saturating_add_unsigned(shift + carry))
        }
    };
    R24 { significand: significand as u32, exponent }
}

/// R24(a * b).
#[must_use]
pub fn mul(a: R24, b: R24) -> R24 {
    round(u128::from(a.significand) * u128::from(b.significand), a.exponent.saturating_add(b.exponent))
}

/// R24(a / b); `None` if `b` is zero.
#[must_use]
pub fn div(a: R24, b: R24) -> Option<R24> {
    // 64 more bits make every quotient but zero 33 bits long: room for the significand and the jammed bit.
    let (dividend, divisor) = (u128::from(a.significand) << 64, u128::from(b.significand));
    let quotient = dividend.checked_div(divisor)?;
    let lost = u128::from(quotient * divisor != dividend);
    let exponent = a.exponent.saturating_sub(b.exponent).saturating_sub(64);
    Some(round(quotient | lost, exponent))
}

/// R24(a + b).
#[must_use]
pub fn add(a: R24, b: R24) -> R24 {
    if a.significand == 0 || b.significand == 0 {
        let other = if a.significand == 0 { b } else { a };
        return round(u128::from(other.significand), other.exponent);
    }
    let (high, low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let distance = high.exponent.abs_diff(low.exponent);
    if distance <= 64 {
        let sum = (u128::from(high.significand) << distance) + u128::from(low.significand);
        return round(sum, low.exponent);
    }
    // All of the lower number lies under the last of 64 added bits.
    round(u128::from(high.significand) << 64 | 1, high.exponent.saturating_sub(64))
}

/// R24 of the square root of `mantissa * 2^exponent`.
#[must_use]
pub fn sqrt(mantissa: u128, exponent: i32) -> R24 {
    if mantissa == 0 {
        return R24::ZERO;
    }
    // A radicand of 127 or 128 bits has a root of 64, and its exponent has to be even.
    let shift = mantissa.leading_zeros();
    let (radicand, exponent) = (mantissa << shift, exponent.saturating_sub_unsigned(shift));
    let (radicand, exponent) = match exponent & 1 {
        0 => (radicand, exponent),
        _ => (radicand >> 1 | radicand & 1, exponent.saturating_add(1)),
    };
    let root = radicand.isqrt();
    let lost = u128::from(root * root != radicand);
    round(root | lost, exponent >> 1)
}

/// How `a` compares to `b`, exactly.
#[must_use]
pub fn compare(a: R24, b: R24) -> Ordering {
    // The place of the leading bit decides, then the significand with its leading bit moved to the top.
    let key = |v: R24| match v.significand {
        0 => None,
        s => Some((i64::from(v.exponent) - i64::from(s.leading_zeros()), s << s.leading_zeros())),
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::testing::Lcg;

    /// A number of 24 bits, with more weight on few bits and on long runs of ones than chance gives.
    fn significand(random: &mut Lcg) -> u32 {
        let bits = match random.below(4) {
            0 => 0,
            1 => 0x00ff_ffff - random.below(4),
            2 => 1 << random.below(23),
            _ => random.next_u32(),
        };
        bits & 0x007f_ffff | 1 << 23
    }

    fn number(random: &mut Lcg, span: u32) -> R24 {
        let exponent = random.below(span) as i32 - span as i32 / 2 - 23;
        R24 { significand: significand(random), exponent }
    }

    /// The value as f32; only for exponents that a normal f32 can have.
    fn as_f32(v: R24) -> f32 {
        let value = v.to_f64() as f32;
        assert!(value.is_normal() && f64::from(value) == v.to_f64());
        value
    }

    #[test]
    fn agrees_with_hardware_in_range() {
        let mut random = Lcg::new(1);
        for _ in 0..200_000 {
            let (a, b) = (number(&mut random, 60), number(&mut random, 60));
            let (x, y) = (as_f32(a), as_f32(b));
            assert_eq!(R24::from_f32(x * y), Some(mul(a, b)), "{x:e} * {y:e}");
            assert_eq!(R24::from_f32(x + y), Some(add(a, b)), "{x:e} + {y:e}");
            assert_eq!(R24::from_f32(x / y), div(a, b), "{x:e} / {y:e}");
            let root = sqrt(u128::from(a.significand), a.exponent);
            assert_eq!(R24::from_f32(x.sqrt()), Some(root), "sqrt {x:e}");
            assert_eq!(x.partial_cmp(&y), Some(compare(a, b)), "{x:e} <=> {y:e}");
            assert_eq!(compare(a, a), Ordering::Equal);
        }
    }

    #[test]
    fn sums_of_distant_numbers_round_like_the_exact_sum() {
        let mut random = Lcg::new(2);
        for _ in 0..100_000 {
            let a = R24 { significand: significand(&mut random), exponent: 0 };
            let distance = random.below(100);
            let b = R24 { significand: significand(&mut random), exponent: -(distance as i32) };
            let exact = (u128::from(a.significand) << distance) + u128::from(b.significand);
            assert_eq!(add(a, b), round(exact, b.exponent), "{a:?} {b:?}");
            assert_eq!(add(b, a), add(a, b));
        }
    }

    /// Whether the true value, given by how it compares to half-integers, rounds to the significand `got`:
    /// `versus(n)` compares it to `n / 2`.
    fn is_nearest_even(got: u32, versus: impl Fn(u128) -> Ordering) -> bool {
        let doubled = 2 * u128::from(got);
        let even = got.is_multiple_of(2);
        let above = versus(doubled - 1);
        let below = versus(doubled + 1);
        (above == Ordering::Greater || even && above == Ordering::Equal)
            && (below == Ordering::Less || even && below == Ordering::Equal)
    }

    #[test]
    fn quotients_and_roots_are_the_nearest() {
        let mut random = Lcg::new(3);
        for _ in 0..100_000 {
            let (a, b) = (number(&mut random, 4000), number(&mut random, 4000));
            let q = div(a, b).unwrap();
            // a / b = q in units of 2^unit, so compare a * 2^(1 - unit) to n * b.
            let unit = q.exponent - (a.exponent - b.exponent);
            let (left, right) = (u128::from(a.significand) << (1 - unit), u128::from(b.significand));
            assert!(is_nearest_even(q.significand, |n| left.cmp(&(n * right))), "{a:?} / {b:?}");

            let mantissa = u128::from(random.next_u64()) >> random.below(60);
            let exponent = random.below(600) as i32 - 300;
            let root = sqrt(mantissa, exponent);
            if mantissa != 0 {
                // v = root in units of 2^unit: compare v * 4^(1 - unit) to n squared.
                let shift = exponent - 2 * root.exponent + 2;
                let versus = |n: u128| match shift {
                    0.. => (mantissa << shift).cmp(&(n * n)),
                    _ => mantissa.cmp(&((n * n) << -shift)),
                };
                assert!(is_nearest_even(root.significand, versus), "sqrt {mantissa:x} 2^{exponent}");
            }
        }
    }

    #[test]
    fn wide_mantissas_round_once() {
        let one = |exponent| R24 { significand: 1 << 23, exponent };
        let next = |exponent| R24 { significand: (1 << 23) + 1, exponent };
        let top = 1u128 << 127;
        let half = 1u128 << 103;
        assert_eq!(round(top, 0), one(104));
        assert_eq!(round(top + half, 0), one(104));
        assert_eq!(round(top + half + 1, 0), next(104));
        assert_eq!(round(top + half - 1, 0), one(104));
        assert_eq!(round(u128::MAX, 0), one(105));
        assert_eq!(round(1, 7), one(7 - 23));
        assert_eq!(round(0, 7), R24::ZERO);
        assert_eq!(sqrt(u128::MAX, 0), one(64 - 23));
        assert_eq!(sqrt(u128::MAX, 1), R24 { significand: 11_863_283, exponent: 64 - 23 });
    }

    #[test]
    fn shift_right_even_rounds_ties_to_even() {
        for (value, shift, want) in [
            (5, 0, 5),
            (5, 1, 2),
            (7, 1, 4),
            (6, 2, 2),
            (1 << 63, 64, 0),
            ((1 << 63) + 1, 64, 1),
            (u64::MAX, 64, 1),
            (u64::MAX, 65, 0),
            (u64::MAX, 63, 2),
            (u64::MAX, 1, 1 << 63),
        ] {
            assert_eq!(shift_right_even(value, shift), want, "{value:x} >> {shift}");
        }
    }

    #[test]
    fn any_field_values_are_taken_without_a_panic() {
        let odd = [0, 1, 5, 1 << 23, u32::MAX].into_iter().flat_map(|significand| {
            [i32::MIN, -1, 0, 1, i32::MAX].map(|exponent| R24 { significand, exponent })
        });
        for a in odd.clone() {
            for b in odd.clone() {
                let results = [Some(mul(a, b)), Some(add(a, b)), div(a, b)];
                assert_eq!(div(a, b).is_none(), b.significand == 0);
                for r in results.into_iter().flatten() {
                    assert!(r == R24::ZERO || r.significand >> 23 == 1, "{a:?} {b:?} {r:?}");
                }
                assert_eq!(compare(a, b), compare(b, a).reverse());
            }
            let _ = sqrt(u128::from(a.significand), a.exponent);
        }
        let (five, normal) = (R24 { significand: 5, exponent: 0 }, round(5, 0));
        assert_eq!(compare(five, normal), Ordering::Equal);
        assert_eq!(mul(five, R24::ONE), normal);
        assert_eq!(add(five, R24::ZERO), normal);
        // A tie of 25 bits, until something distant is added.
        let tie = R24 { significand: (1 << 24) + 1, exponent: 0 };
        let tiny = R24 { significand: 1, exponent: -1000 };
        assert_eq!(add(tie, R24::ZERO), R24 { significand: 1 << 23, exponent: 1 });
        assert_eq!(add(tie, tiny), R24 { significand: (1 << 23) + 1, exponent: 1 });
    }
}
