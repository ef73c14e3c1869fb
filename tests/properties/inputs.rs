//! Random sets of gradients, and what a step is told.

use gradclip::{ClipNorm, Format, LossScale, NormType};
use proptest::prelude::*;
use proptest::sample::Index;

use super::common::cases::Input;
use super::common::runner::on_reference;

#[derive(Debug, Clone)]
pub struct Tensor {
    format: Format,
    len: usize,
    /// Exponents of the elements lie at most `width` away from it.
    centre: i32,
    width: i32,
    seed: u64,
}

#[derive(Debug, Clone)]
enum Limit {
    None,
    Infinite,
    /// f32 bits.
    Bits(u32),
    /// So many f32 values above the norm.
    NearNorm(i32),
    /// So many times the norm.
    OfNorm(f32),
}

#[derive(Debug, Clone)]
enum Eps {
    Bits(u32),
    /// So many powers of two times the norm.
    OfNorm(i32),
}

/// A set and its step, small enough to print; [`Set::input`] makes the bytes.
#[derive(Debug, Clone)]
pub struct Set {
    tensors: Vec<Tensor>,
    /// Tensor, element, kind.
    nonfinite: Vec<(Index, Index, usize)>,
    scale: f32,
    limit: Limit,
    eps: Eps,
}

/// Any set, one in ten with something nonfinite.
pub fn any_set() -> BoxedStrategy<Set> {
    let limits = prop_oneof![
        3 => Just(Limit::None),
        1 => Just(Limit::Infinite),
        1 => Just(Limit::Bits(0)),
        1 => (0..0x0100_0000u32).prop_map(Limit::Bits),
        1 => (0..0x7f80_0000u32).prop_map(Limit::Bits),
        2 => (-3..=3i32).prop_map(Limit::NearNorm),
        8 => (0.0..1.2f32).prop_map(Limit::OfNorm),
    ];
    let element = (any::<Index>(), any::<Index>(), 0..3usize);
    let nonfinite = prop_oneof![9 => Just(Vec::new()), 1 => prop::collection::vec(element, 1..4)];
    sets(limits.boxed(), nonfinite.boxed())
}

/// Finite sets with a limit, most of them above it.
pub fn limited_set() -> BoxedStrategy<Set> {
    let limits = prop_oneof![
        1 => (0..0x0100_0000u32).prop_map(Limit::Bits),
        2 => (-3..=3i32).prop_map(Limit::NearNorm),
        6 => (0.0..1.1f32).prop_map(Limit::OfNorm),
    ];
    sets(limits.boxed(), Just(Vec::new()).boxed())
}

fn sets(
    limits: BoxedStrategy<Limit>,
    nonfinite: BoxedStrategy<Vec<(Index, Index, usize)>>,
) -> BoxedStrategy<Set> {
    let eps = prop_oneof![
        4 => Just(Eps::Bits(0)),
        4 => Just(Eps::Bits(1e-6f32.to_bits())),
        3 => (-26..3i32).prop_map(Eps::OfNorm),
        1 => (0..0x7f80_0000u32).prop_map(Eps::Bits),
    ];
    (scales(), limits, nonfinite, eps)
        .prop_flat_map(|(scale, limit, nonfinite, eps)| {
            let exponent = f64::from(scale).log2() as i32;
            // Around the scale results fit f32; elsewhere they may vanish or overflow.
            let centres = prop_oneof![
                3 => (exponent - 30..exponent + 20).prop_map(|e| e.clamp(-149, 127)),
                1 => -149..128,
            ];
            let tensors = centres.prop_flat_map(|centre| prop::collection::vec(tensors(centre), 0..=6));
            tensors.prop_map(move |tensors| Set {
                tensors,
                nonfinite: nonfinite.clone(),
                scale,
                limit: limit.clone(),
                eps: eps.clone(),
            })
        })
        .boxed()
}

fn scales() -> impl Strategy<Value = f32> {
    prop_oneof![
        2 => Just(1.0),
        4 => (-20..=24).prop_map(|e| 2f32.powi(e)),
        3 => (0x0080_0000..0x7f80_0000u32).prop_map(f32::from_bits),
        2 => 0.001..100_000f32,
        1 => (1..0x0080_0000u32).prop_map(f32::from_bits),
        1 => prop::sample::select(vec![2f32.powi(127), f32::MAX, f32::MIN_POSITIVE]),
    ]
}

fn tensors(set_centre: i32) -> impl Strategy<Value = Tensor> {
    let lens = prop_oneof![4 => 0..20usize, 3 => 0..300usize, 2 => 0..3000usize];
    let offsets = prop_oneof![3 => -12..12i32, 1 => -120..120i32];
    let widths = prop_oneof![2 => 0..4i32, 2 => 0..30i32, 1 => 0..280i32];
    (prop::sample::select(Format::ALL.to_vec()), lens, offsets, widths, any::<u64>()).prop_map(
        move |(format, len, offset, width, seed)| Tensor {
            format,
            len,
            centre: set_centre + offset,
            width,
            seed,
        },
    )
}

impl Set {
    /// The bytes and numbers of the step.
    pub fn input(&self) -> Input {
        self.input_of(NormType::L2)
    }

    /// [`Set::input`] with a limit of that norm.
    pub fn input_of(&self, norm_type: NormType) -> Input {
        let tensors: Vec<_> = self.tensors.iter().map(|t| (t.format, t.bytes())).collect();
        let scale = LossScale::new(self.scale).unwrap();
        let mut input = Input { name: "random".into(), scale, clip: None, tensors };
        let of_type = |max_norm| ClipNorm::new(max_norm).unwrap().with_norm_type(norm_type);
        let measured = Input { clip: Some(of_type(f32::INFINITY)), ..input.clone() };
        let norm = (on_reference(&measured).norm as f32).min(f32::MAX);
        let eps = match self.eps {
            Eps::Bits(bits) => f32::from_bits(bits),
            Eps::OfNorm(power) => (norm * 2f32.powi(power)).min(f32::MAX),
        };
        let max_norm = match self.limit {
            Limit::None => None,
            Limit::Infinite => Some(f32::INFINITY),
            Limit::Bits(bits) => Some(f32::from_bits(bits)),
            Limit::NearNorm(by) => {
                let bits = norm.to_bits().saturating_add_signed(by).min(f32::INFINITY.to_bits());
                Some(f32::from_bits(bits))
            }
            Limit::OfNorm(part) => Some(norm * part),
        };
        input.clip = max_norm.map(|m| of_type(m).with_eps(eps).unwrap());
        for (tensor, element, kind) in &self.nonfinite {
            let mut filled: Vec<_> = input.tensors.iter_mut().filter(|t| !t.1.is_empty()).collect();
            if filled.is_empty() {
                break;
            }
            let (format, bytes) = &mut *filled.swap_remove(tensor.index(filled.len()));
            let bits = match format {
                Format::F32 => [0x7f80_0000u32, 0xff80_0000, 0xff80_0001],
                Format::F16 => [0x7c00, 0xfc00, 0x7c01],
                Format::Bf16 => [0x7f80, 0xff80, 0x7fff],
            }[*kind];
            let size = format.size() as usize;
            let at = element.index(bytes.len() / size) * size;
            bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        input
    }
}

impl Tensor {
    fn bytes(&self) -> Vec<u8> {
        let mut random = Lcg(self.seed);
        let mut bytes = Vec::new();
        for _ in 0..self.len {
            let bits = self.element(&mut random);
            bytes.extend_from_slice(&bits.to_le_bytes()[..self.format.size() as usize]);
        }
        bytes
    }

    /// A finite element: one in sixteen is a zero, some have few bits or all.
    fn element(&self, random: &mut Lcg) -> u32 {
        let (fraction_bits, bias, sign) = match self.format {
            Format::F32 => (23, 127, 31),
            Format::F16 => (10, 15, 15),
            Format::Bf16 => (7, 127, 15),
        };
        let ones = (1u32 << fraction_bits) - 1;
        let fraction = ones
            & match random.below(8) {
                0 => 0,
                1 => ones,
                2 => 1 << random.below(fraction_bits),
                _ => random.next(),
            };
        let spread = random.below(2 * self.width.unsigned_abs() + 1).cast_signed() - self.width;
        let field = (self.centre + spread + bias).min(2 * bias);
        let magnitude = match (random.below(16), field) {
            (0, _) => 0,
            (_, 1..) => field.unsigned_abs() << fraction_bits | fraction,
            // Subnormal; far below them nothing is left.
            _ => (1 << fraction_bits | fraction).checked_shr(1 + field.unsigned_abs()).unwrap_or(0),
        };
        magnitude | random.below(2) << sign
    }
}

/// Deterministic and fast: an element each from a proptest strategy would take longer than the step.
pub struct Lcg(pub u64);

impl Lcg {
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(n)) >> 32) as u32
    }
}
