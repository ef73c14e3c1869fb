//! Gradients whose L1 norm lies half way between two 24-bit numbers, and one more that decides it.

use gradclip::{ClipNorm, Format, LossScale, NormType};
use proptest::prelude::*;

use crate::arrange::{Arrangement, Placed};
use crate::common::adapters::label;
use crate::common::cases::Input;
use crate::common::gpus;
use crate::common::limit::Limit;
use crate::common::runner::limited_on_reference;
use crate::random::config;

/// Binades of a cell.
const CELL: i32 = 22;
/// Elements between the ones that count: in one thread's words, and in another tile.
const PLACEMENTS: [usize; 3] = [1, 256, 4096];

#[derive(Debug, Clone)]
struct Tie {
    format: Format,
    /// 25 bits, one more than a multiple of 4: the even neighbour lies below.
    norm: u32,
    /// Biased exponent of the largest element.
    field: i32,
    /// Where in its cell the deciding element lies.
    place: i32,
}

fn ties() -> impl Strategy<Value = Tie> {
    let formats = prop::sample::select(vec![Format::F32, Format::Bf16]);
    // From the fifth place of its cell on the half unit lies in the next cell or below, so one there can decide.
    let fields = (4..=11, 4..CELL).prop_map(|(cell, place): (i32, i32)| (CELL * cell + place).min(254));
    (formats, (1u32 << 22)..(1 << 23), fields, 0..CELL).prop_map(|(format, quarter, field, place)| Tie {
        format,
        norm: 4 * quarter + 1,
        field,
        place,
    })
}

impl Tie {
    /// Numbers of at most 8 bits, which both formats hold, that add up to the norm; and the power of two that decides.
    fn values(&self, below: i32) -> Vec<f32> {
        let unit = 2f64.powi(self.field - 127 - 24);
        let part = |bits: u32| f64::from(self.norm & bits) * unit;
        let mut values: Vec<f64> = vec![part(0xff << 17), part(0xff << 9), part(0x1fe), part(1)];
        if below > 0 {
            let cell = self.field / CELL - below;
            let field = (CELL * cell + self.place).min(self.field - 26).max(CELL * cell).max(1);
            assert_eq!(field / CELL, cell);
            values.push(2f64.powi(field - 127));
        }
        values.into_iter().map(|value| value as f32).collect()
    }

    /// Zeros between the values; bf16 has the upper half of their bits.
    fn tensor(&self, values: &[f32], apart: usize) -> (Format, Vec<u8>) {
        let mut bytes = Vec::new();
        for (i, value) in values.iter().enumerate() {
            let signed = if i % 2 == 0 { *value } else { -value };
            let start = 4 - self.format.size() as usize;
            bytes.extend(&signed.to_le_bytes()[start..]);
            bytes.resize(bytes.len() + (apart * 4 - 4 + start), 0);
        }
        (self.format, bytes)
    }
}

proptest! {
    // Each is 15 steps.
    #![proptest_config(config(6))]

    #[test]
    fn the_least_digit_decides_a_tie(tie in ties()) {
        let measured = Limit::Norm(Some(ClipNorm::new(f32::INFINITY).unwrap().with_norm_type(NormType::L1)));
        for (below, apart) in (0..=4).flat_map(|below| PLACEMENTS.map(|apart| (below, apart))) {
            // The fourth cell below the top is ignored.
            let rounded = if (1..=3).contains(&below) { tie.norm + 1 } else { tie.norm - 1 };
            let want = f64::from(rounded) * 2f64.powi(tie.field - 127 - 24);
            let mut values = tie.values(below);
            values.reverse();
            let (first, rest) = values.split_at(usize::from(apart == 256));
            let tensors = vec![tie.tensor(first, apart), tie.tensor(rest, apart)];
            let input = Input { name: "tie".into(), scale: LossScale::ONE, clip: None, tensors };
            let what = format!("{below} cells below, {apart} apart");
            prop_assert_eq!(limited_on_reference(&input, measured).norm, want, "{} on the reference", what);
            let whole = Arrangement::whole(&input);
            for gpu in gpus() {
                let got = Placed::new(&gpu.context, &input, &whole).limited(LossScale::ONE, measured).norm;
                prop_assert_eq!(got, want, "{} on {}", what, label(&gpu.info));
            }
        }
    }
}
