//! Gradients whose norm lies half way between two 24-bit numbers, and one more that decides it.

use gradclip::{Format, LossScale};
use proptest::prelude::*;

use super::common::cases::Input;

/// Elements between the ones that count: one thread's words are 256 apart, and its blocks 4096.
const PLACEMENTS: [usize; 4] = [1, 256, 512, 4096];
/// Binades of a cell.
const CELL: i32 = 11;

#[derive(Debug, Clone)]
pub struct Tie {
    format: Format,
    /// 25 bits, one more than a multiple of 4: the even neighbour lies below.
    norm: u32,
    /// Of the unit of `norm`.
    exponent: i32,
    /// Where in its cell the deciding element lies.
    place: i32,
}

/// A step, and its norm.
pub struct Decided {
    pub what: String,
    pub input: Input,
    pub norm: f64,
}

pub fn ties() -> impl Strategy<Value = Tie> {
    let formats = prop_oneof![
        Just(Format::F32).prop_flat_map(|f| (Just(f), -100..=100)),
        Just(Format::Bf16).prop_flat_map(|f| (Just(f), -100..=100)),
        // Three cells below the top have to lie in the format.
        Just(Format::F16).prop_flat_map(|f| (Just(f), -19..=-9)),
    ];
    (formats, (1u32 << 22)..(1 << 23), 0..CELL).prop_map(|((format, exponent), quarter, place)| Tie {
        format,
        norm: 4 * quarter + 1,
        exponent,
        place,
    })
}

impl Tie {
    /// The tie alone, and with an element in each of the four cells below the top one. The last of them is ignored.
    pub fn steps(&self) -> Vec<Decided> {
        let mut steps = Vec::new();
        // The fourth cell below is not in f16.
        let lowest = if self.format == Format::F16 { 3 } else { 4 };
        for below in 0..=lowest {
            let decider = (below > 0).then(|| self.in_cell_below_top(below));
            let up = (1..=3).contains(&below);
            let rounded = if up { self.norm + 1 } else { self.norm - 1 };
            let mut values = self.squares();
            for (apart, first, own) in PLACEMENTS
                .into_iter()
                .flat_map(|apart| [(apart, false, false), (apart, true, false), (apart, false, true)])
            {
                let mut tensors = Vec::new();
                let decider = decider.into_iter();
                if own {
                    tensors.extend(decider.map(|d| self.tensor(&[d], apart)));
                    tensors.push(self.tensor(&values, apart));
                } else if first {
                    let all: Vec<f64> = decider.chain(values.iter().copied()).collect();
                    tensors.push(self.tensor(&all, apart));
                } else {
                    let all: Vec<f64> = values.iter().copied().chain(decider).collect();
                    tensors.push(self.tensor(&all, apart));
                }
                values.rotate_left(1);
                steps.push(Decided {
                    what: format!("{below} cells below, {apart} apart, first {first}, own tensor {own}"),
                    input: Input { name: "tie".into(), scale: LossScale::ONE, clip: None, tensors },
                    norm: f64::from(rounded) * 2f64.powi(self.exponent),
                });
            }
        }
        steps
    }

    /// Numbers of at most 8 bits, which every format holds, whose squares add up to that of the norm.
    fn squares(&self) -> Vec<f64> {
        let mut left = u64::from(self.norm).pow(2);
        let mut values = Vec::new();
        while left > 0 {
            let root = left.isqrt();
            let cut = (64 - root.leading_zeros()).saturating_sub(8);
            let value = root >> cut << cut;
            left -= value * value;
            values.push(value as f64 * 2f64.powi(self.exponent));
        }
        values
    }

    /// A power of two so many cells below the largest element, and below 2^-11 of it, so that it decides the tie and
    /// does no more.
    fn in_cell_below_top(&self, below: i32) -> f64 {
        let largest = self.exponent + 24 + 127;
        let cell = largest / CELL - below;
        let lowest = if self.format == Format::F16 { 127 - 24 } else { 1 };
        let field = (CELL * cell + self.place).min(largest - CELL).max(CELL * cell).max(lowest);
        assert_eq!(field / CELL, cell);
        2f64.powi(field - 127)
    }

    /// The values so many words apart, zeros between them, every other value negative.
    fn tensor(&self, values: &[f64], apart: usize) -> (Format, Vec<u8>) {
        let mut bytes = Vec::new();
        let gap = apart * self.format.per_word() as usize - 1;
        for (i, &value) in values.iter().enumerate() {
            let value = if i % 2 == 0 { value } else { -value };
            match self.format {
                Format::F32 => bytes.extend((value as f32).to_le_bytes()),
                Format::F16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
                Format::Bf16 => bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
            }
            bytes.resize(bytes.len() + gap * self.format.size() as usize, 0);
        }
        (self.format, bytes)
    }
}
