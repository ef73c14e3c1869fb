//! The operands: deterministic, with more weight on powers of two, few bits, runs of ones, equal operands and
//! neighbours of squares than chance gives.

use gradclip::R24;

/// Random operands per operation, beside those written out.
const RANDOM: usize = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Mul,
    Div,
    Add,
    Less,
    /// Of a 128-bit integer, highest word first, and an even exponent.
    Sqrt,
    /// The bits of an f32 magnitude, one word unused, a factor.
    Times,
    FromBits,
    /// High word, low word, shift, whether the true number is a little above.
    Shift,
    /// 1 / (a * b).
    InverseProduct = 13,
}

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub op: Op,
    pub words: [u32; 5],
}

impl Case {
    pub fn operands(&self) -> (R24, R24) {
        let [sa, ea, sb, eb, _] = self.words;
        let number = |significand, exponent: u32| R24 { significand, exponent: exponent.cast_signed() };
        (number(sa, ea), number(sb, eb))
    }

    pub fn radicand(&self) -> u128 {
        self.words[..4].iter().fold(0, |v, &word| v << 32 | u128::from(word))
    }

    pub fn wide(&self) -> u64 {
        u64::from(self.words[0]) << 32 | u64::from(self.words[1])
    }
}

struct Lcg(u64);

impl Lcg {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(n)) >> 32) as u32
    }

    fn wide(&mut self) -> u64 {
        u64::from(self.next()) << 32 | u64::from(self.next())
    }

    /// 24 bits.
    fn significand(&mut self) -> u32 {
        let bits = match self.below(5) {
            0 => 0,
            1 => 0xff_ffff - self.below(4),
            2 => 1 << self.below(23),
            3 => 1 << self.below(23) | 1 << self.below(23),
            _ => self.next(),
        };
        bits & 0x7f_ffff | 1 << 23
    }

    /// Two numbers: in f32's range, close to each other, or anywhere.
    fn pair(&mut self) -> (R24, R24) {
        let (span, apart) = [(100, 100), (160, 60), (800, 800)][self.below(3) as usize];
        let at = |random: &mut Self, span: u32| random.below(span).cast_signed() - span.cast_signed() / 2;
        let first = at(self, span);
        let second = if self.below(8) == 0 { first } else { first + at(self, apart) };
        let mut a = R24 { significand: self.significand(), exponent: first - 23 };
        let mut b = R24 { significand: self.significand(), exponent: second - 23 };
        match self.below(50) {
            0 => a = R24::ZERO,
            1 => b = R24::ZERO,
            2 | 3 => a = b,
            _ => {}
        }
        (a, b)
    }
}

fn two(op: Op, a: R24, b: R24) -> Case {
    let exponents = [a.exponent, b.exponent].map(i32::cast_unsigned);
    Case { op, words: [a.significand, exponents[0], b.significand, exponents[1], 0] }
}

fn sqrt(v: u128, exponent: i32) -> Case {
    let word = |i: u32| (v >> (32 * i)) as u32;
    Case { op: Op::Sqrt, words: [word(3), word(2), word(1), word(0), exponent.cast_unsigned()] }
}

fn times(magnitude: u32, factor: R24) -> Case {
    let exponent = factor.exponent.cast_unsigned();
    Case { op: Op::Times, words: [magnitude, 0, factor.significand, exponent, 0] }
}

fn shift(value: u64, by: u32, more: bool) -> Case {
    Case { op: Op::Shift, words: [(value >> 32) as u32, value as u32, by, u32::from(more), 0] }
}

/// Operands of every operation.
pub fn cases() -> Vec<Case> {
    let mut random = Lcg(24);
    let mut cases = Vec::new();
    for op in [Op::Mul, Op::Div, Op::Add, Op::Less] {
        for _ in 0..RANDOM {
            let (a, b) = random.pair();
            if op != Op::Div || b != R24::ZERO {
                cases.push(two(op, a, b));
            }
        }
    }
    inverses(&mut random, &mut cases);
    cases.extend(sums());
    roots(&mut random, &mut cases);
    products(&mut random, &mut cases);
    shifts(&mut random, &mut cases);
    for bit in 0..31 {
        for near in [-1, 0, 1] {
            let bits = (1u32 << bit).wrapping_add_signed(near).min(0x7f7f_ffff);
            cases.push(Case { op: Op::FromBits, words: [bits, 0, 0, 0, 0] });
        }
    }
    cases.extend((0..RANDOM).map(|_| {
        let bits = (random.next() & 0x7fff_ffff) >> random.below(31);
        Case { op: Op::FromBits, words: [bits.min(0x7f7f_ffff), 0, 0, 0, 0] }
    }));
    cases
}

/// Factors whose product is near a power of two, where one bit less makes the quotient longer; and pairs of any kind, since no
/// quotient is a tie.
fn inverses(random: &mut Lcg, cases: &mut Vec<Case>) {
    let at = |significand: u32, exponent: i32| R24 { significand, exponent };
    let edges = [0x80_0000, 0x80_0001, 0xb5_04f2, 0xb5_04f3, 0xb5_04f4, 0xff_fffe, 0xff_ffff];
    for a in edges {
        for b in edges {
            cases.extend([0, -23, 105, -172].map(|e| two(Op::InverseProduct, at(a, e), at(b, -23))));
        }
    }
    for _ in 0..RANDOM {
        let (a, b) = random.pair();
        if a != R24::ZERO && b != R24::ZERO {
            cases.push(two(Op::InverseProduct, a, b));
        }
        // The product is 2^47 or next to it.
        let a = random.significand();
        let b = ((1u64 << 47) / u64::from(a)) as u32 + random.below(3);
        if b >> 23 == 1 {
            cases.push(two(Op::InverseProduct, at(a, -23), at(b.min(0xff_ffff), -23)));
        }
    }
}

/// One ulp, half an ulp and less, at every distance that a shift can be wrong at.
fn sums() -> impl Iterator<Item = Case> {
    let significands = [0x80_0000, 0x80_0001, 0xff_fffe, 0xff_ffff];
    let distances = (0..140).chain([255, 256, 800, 4000]);
    distances.flat_map(move |distance| {
        significands.into_iter().flat_map(move |high| {
            significands.into_iter().flat_map(move |low| {
                let high = R24 { significand: high, exponent: 0 };
                let low = R24 { significand: low, exponent: -distance };
                [two(Op::Add, high, low), two(Op::Add, low, high), two(Op::Less, low, high)]
            })
        })
    })
}

fn roots(random: &mut Lcg, cases: &mut Vec<Case>) {
    let even = |random: &mut Lcg| 2 * (random.below(400).cast_signed() - 200);
    cases.push(sqrt(0, 0));
    for bit in 0..128 {
        let power = 1u128 << bit;
        cases.extend([power - 1, power, power + 1, power | power >> 1].map(|v| sqrt(v, even(random))));
    }
    cases.push(sqrt(u128::MAX, 0));
    for _ in 0..RANDOM / 3 {
        // Of 25 bits: odd ones are ties.
        let n = u128::from(
            random.wide()
                >> match random.below(2) {
                    0 => 39,
                    _ => random.below(64),
                },
        );
        let square = n * n;
        cases.extend([square.saturating_sub(1), square, square + 1].map(|v| sqrt(v, even(random))));
        // A tie, with one bit far below it.
        let shift = 2 * random.below(square.leading_zeros() / 2 + 1).min(63);
        cases.push(sqrt(square << shift | 1, even(random)));
        cases.push(sqrt(square << shift, even(random)));
    }
    for _ in 0..RANDOM {
        let v = u128::from(random.wide()) << 64 | u128::from(random.wide());
        cases.push(sqrt(v >> random.below(128), even(random)));
        // A normal f32.
        cases.push(sqrt(random.significand().into(), 2 * (random.below(100).cast_signed() - 62)));
    }
}

fn products(random: &mut Lcg, cases: &mut Vec<Case>) {
    let one = |exponent: i32| R24 { significand: 1 << 23, exponent: exponent - 23 };
    for bits in [0, 1, 3, 0x7f_ffff, 0x80_0000, 0x80_0001, 0x3f80_0000, 0x7f7f_ffff] {
        cases.push(times(bits, R24::ZERO));
        cases.extend((-300..300).flat_map(|e| {
            let just_below = R24 { significand: 0xff_ffff, exponent: e - 24 };
            [times(bits, one(e)), times(bits, just_below)]
        }));
    }
    for i in 0..2 * RANDOM {
        let fraction = random.significand() & 0x7f_ffff;
        let field = [random.below(255), random.below(3)][i % 2];
        let magnitude = field << 23 | fraction;
        // In three of four the result lies near or under the smallest normal, elsewhere in the range, or near the end.
        let target = match random.below(4) {
            0 => random.below(60).cast_signed() - 160,
            1 => random.below(10).cast_signed() - 130,
            2 => random.below(254).cast_signed() - 126,
            _ => 126 + random.below(4).cast_signed(),
        };
        let significand = random.significand();
        let exponent = target - (field.cast_signed() - 127) - 23;
        cases.push(times(magnitude, R24 { significand, exponent }));
    }
}

fn shifts(random: &mut Lcg, cases: &mut Vec<Case>) {
    for by in 0..80 {
        for value in [0, 1, 1 << 31, 1 << 63, (1 << 63) + 1, u64::MAX] {
            if by >= 40 || value >> by < 1 << 31 {
                cases.extend([false, true].map(|more| shift(value, by, more)));
            }
        }
    }
    for _ in 0..RANDOM {
        let by = random.below(70);
        // The quotient fits 31 bits; what is shifted out is anything, half, or next to half.
        let kept = u64::from(random.next() >> 1 >> random.below(31));
        let half = 1u64.checked_shl(by.wrapping_sub(1)).unwrap_or(0);
        let lost = match random.below(4) {
            0 => half,
            1 => half.saturating_sub(1),
            2 => half + u64::from(by > 1),
            _ => random.wide(),
        };
        let mask = 1u64.checked_shl(by).map_or(u64::MAX, |b| b - 1);
        let value = kept.checked_shl(by).unwrap_or(0) | lost & mask;
        if value.checked_shr(by).unwrap_or(0) < 1 << 31 {
            cases.push(shift(value, by, random.below(2) == 1));
        }
    }
}
