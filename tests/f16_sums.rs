//! The whole sum of f16, on every bit, at the ends of what its accumulators have room for.

mod common;

use common::adapters::label;
use common::runner::upload;
use gradclip::plan::{MAX_TILE_WORDS, PlanLimits};
use gradclip::reference::{self, TensorBits};
use gradclip::{ClipNorm, Context, Format, GradSet, Ledger, LossScale, NormType, TensorSlice};

const LEAST: u16 = 0x0001;
const MOST: u16 = 0x7bff;

fn limit(norm_type: NormType) -> Option<ClipNorm> {
    Some(ClipNorm::new(f32::INFINITY).unwrap().with_norm_type(norm_type))
}

/// The value in units of 2^-24.
fn units(bits: u16) -> u128 {
    let (field, fraction) = (bits >> 10 & 0x1f, u128::from(bits & 0x3ff));
    if field == 0 { fraction } else { (fraction + 1024) << (field - 1) }
}

fn sum(elements: &[u16], norm_type: NormType) -> u128 {
    let term = |&bits: &u16| if norm_type == NormType::L1 { units(bits) } else { units(bits) * units(bits) };
    elements.iter().map(term).sum()
}

fn bytes(elements: &[u16]) -> Vec<u8> {
    elements.iter().flat_map(|e| e.to_le_bytes()).collect()
}

fn measured(gpu: &Context, tensors: &[(Format, &[u8])], limits: PlanLimits, norm_type: NormType) -> Ledger {
    let buffers: Vec<_> = tensors.iter().map(|(_, bytes)| upload(gpu, bytes)).collect();
    let mut builder = GradSet::builder("set").plan_limits(limits);
    for (i, ((format, bytes), buffer)) in tensors.iter().zip(&buffers).enumerate() {
        let len = bytes.len() as u64 / format.size();
        builder =
            builder.tensor(format!("tensor {i}"), TensorSlice { buffer, offset: 0, len, format: *format });
    }
    let set = builder.build(gpu).unwrap();
    set.prepare([gradclip::Prepare::Ledger, gradclip::Prepare::L1]).unwrap();
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    set.record_ledger(&mut encoder, LossScale::ONE, limit(norm_type)).unwrap();
    gpu.queue().submit([encoder.finish()]);
    set.read_ledger().unwrap()
}

/// The ledger of f16 alone, in small tiles and in the largest.
fn check(what: &str, elements: &[u16]) {
    let data = bytes(elements);
    for norm_type in [NormType::L1, NormType::L2] {
        let want = sum(elements, norm_type);
        for gpu in common::gpus() {
            for tile_words in [16_384, MAX_TILE_WORDS] {
                let mut limits = PlanLimits::from_device(gpu.context.device());
                limits.tile_words = tile_words;
                let got = measured(&gpu.context, &[(Format::F16, &data)], limits, norm_type);
                let who = label(&gpu.info);
                assert_eq!(got.f16(), want, "{what}, {norm_type}, tiles of {tile_words} words on {who}");
                assert_eq!(got.cells(), &[0; 27]);
            }
        }
    }
}

fn random(seed: u64) -> impl Iterator<Item = u16> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u16
    })
    .filter(|bits| bits & 0x7c00 != 0x7c00)
}

#[test]
fn sixteen_million_of_the_largest_and_the_least() {
    let many = 1 << 24;
    for (what, elements) in [
        ("the largest", vec![MOST; many]),
        ("the least", vec![LEAST; many]),
        ("in turns", [MOST, LEAST, 0x8000 | MOST, 0x8000 | LEAST].repeat(many / 4)),
        ("word by word", [MOST, MOST, LEAST, LEAST].repeat(many / 4)),
        ("block by block", [vec![MOST; 8192], vec![LEAST; 8192]].concat().repeat(many / 16_384)),
    ] {
        check(what, &elements);
    }
}

/// Four words of a thread's block, 1024 apart, go into its accumulators one after the other.
#[test]
fn every_number_fills_an_accumulator() {
    let numbers: Vec<u16> = (0..0x7c00).collect();
    let blocks = numbers.chunks(1024).map(|row| row.iter().flat_map(|&n| [n, n]).collect::<Vec<u16>>());
    let elements: Vec<u16> = blocks.flat_map(|row| row.repeat(4)).collect();
    assert_eq!(elements.len(), 8 * 0x7c00);
    check("every number eight times", &elements);
}

/// The numbers that round off most, up and down, at each accumulator of squares; and those next to a tie of magnitudes.
#[test]
fn the_largest_rests_of_one_sign() {
    let rest = |bits: u16, last: i32| {
        let (square, last) = ((units(bits) * units(bits)).cast_signed(), 1i128 << (last + 48));
        let rest = square.rem_euclid(last);
        if rest * 2 > last { rest - last } else { rest }
    };
    for last in [12, -8, -28] {
        let mut numbers: Vec<u16> = (0..0x7c00).collect();
        numbers.sort_by_key(|&bits| rest(bits, last));
        let (low, high) = (&numbers[..512], &numbers[numbers.len() - 512..]);
        for (what, some) in [("down", high), ("up", low)] {
            check(&format!("rests {what} at 2^{last}"), &some.repeat(1 << 12));
        }
    }
    let ties: Vec<u16> = (0..0x7c00).filter(|&bits| units(bits) % (1 << 20) == 1 << 19).collect();
    assert!(!ties.is_empty());
    check("ties of magnitudes", &ties.repeat(300_000 / ties.len()));
}

#[test]
fn random_numbers() {
    check("random", &random(1).take((1 << 20) + 77).collect::<Vec<_>>());
    check("random, small", &random(2).map(|bits| bits & 0x83ff).take(300_001).collect::<Vec<_>>());
}

/// f16 among the others: the ledger and the norm are the reference's.
#[test]
fn beside_f32_and_bf16() {
    let f16 = |n: usize| [vec![MOST; n], vec![LEAST; n], random(3).take(n).collect()].concat();
    let f32s = |scale: f32| -> Vec<u8> {
        random(4).take(70_001).flat_map(|b| (f32::from(b) * scale).to_le_bytes()).collect()
    };
    let bf16 = bytes(&random(5).map(|b| b & 0xbfff).take(50_003).collect::<Vec<_>>());
    for (n, scale) in [(1 << 21, 1.0), (77, 1e30), (100_000, 1e-38), (3000, 1e9)] {
        let (whole, parts) = (bytes(&f16(n)), f32s(scale));
        let tensors: [(Format, &[u8]); 4] = [
            (Format::F16, &whole),
            (Format::F32, &parts),
            (Format::Bf16, &bf16),
            (Format::F16, &whole[..100]),
        ];
        for norm_type in [NormType::L1, NormType::L2] {
            let mut copies = tensors.map(|(_, bytes)| bytes.to_vec());
            let bits: Vec<TensorBits<'_>> = tensors
                .iter()
                .zip(&mut copies)
                .map(|(&(format, _), bytes)| TensorBits::new(format, bytes))
                .collect();
            let want = reference::ledger(&bits, LossScale::ONE, limit(norm_type)).unwrap();
            for gpu in common::gpus() {
                let limits = PlanLimits::from_device(gpu.context.device());
                let got = measured(&gpu.context, &tensors, limits, norm_type);
                assert_eq!(got, want, "{norm_type}, {n} and {scale:e} on {}", label(&gpu.info));
            }
        }
    }
}
