//! Elements as numbers, and limits for them.

use gradclip::{ClipValue, Format};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::common::cases::Input;

/// A limit, told so that it means something for any set.
#[derive(Debug, Clone)]
pub enum Value {
    None,
    /// f32 bits.
    Bits(u32),
    /// So many times the largest result.
    OfLargest(f32),
    /// So many f32 values above the result of an element, as f32 has it.
    NearElement(Index, Index, i32),
}

pub fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::None),
        1 => Just(Value::Bits(0)),
        1 => (0..0x0100_0000u32).prop_map(Value::Bits),
        2 => (0..0x7f80_0000u32).prop_map(Value::Bits),
        4 => (0.0..1.2f32).prop_map(Value::OfLargest),
        4 => (any::<Index>(), any::<Index>(), -2..=2i32)
            .prop_map(|(tensor, element, by)| Value::NearElement(tensor, element, by)),
    ]
}

impl Value {
    pub fn of(&self, input: &Input) -> ClipValue {
        let results: Vec<Vec<f32>> = input
            .tensors
            .iter()
            .map(|(format, bytes)| numbers(*format, bytes))
            .map(|values| values.map(|x| (x.abs() / f64::from(input.scale.get())) as f32).collect())
            .collect();
        let filled: Vec<&Vec<f32>> = results.iter().filter(|values| !values.is_empty()).collect();
        let value = match self {
            Self::None => f32::INFINITY,
            Self::Bits(bits) => f32::from_bits(*bits),
            _ if filled.is_empty() => 1.0,
            Self::OfLargest(part) => part * filled.into_iter().flatten().fold(0.0, |a: f32, &b| a.max(b)),
            Self::NearElement(tensor, element, by) => {
                let values = filled[tensor.index(filled.len())];
                let near = values[element.index(values.len())];
                f32::from_bits(near.to_bits().saturating_add_signed(*by))
            }
        };
        // The largest of some set is NaN or infinite.
        ClipValue::new(if value.is_nan() { 1.0 } else { value }).unwrap()
    }
}

/// Stored elements as numbers.
pub fn numbers(format: Format, bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    let size = format.size() as usize;
    bytes.chunks_exact(size).map(move |b| match format {
        Format::F32 => f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        Format::F16 => half::f16::from_le_bytes([b[0], b[1]]).to_f64(),
        Format::Bf16 => half::bf16::from_le_bytes([b[0], b[1]]).to_f64(),
    })
}
