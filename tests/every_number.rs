//! Every finite f16 and bf16 number through the write pass, at several factors, in quads and word by word.

mod common;

use gradclip::reference::{TensorBits, step};
use gradclip::{Format, GradSet, LossScale, TensorSlice};

/// Factors below 1, so that nothing overflows and many results are subnormal or halfway between two numbers.
const SCALES: [f32; 7] = [1.01, 1.5, 3.0, 7.3, 1000.0, 65_536.0, 3e7];

fn every(format: Format) -> Vec<u8> {
    let exponent = if format == Format::F16 { 0x7c00u16 } else { 0x7f80 };
    let finite = (0..=u16::MAX).filter(|bits| bits & exponent != exponent);
    finite.flat_map(u16::to_le_bytes).collect()
}

#[test]
fn is_divided_as_the_reference_divides_it() {
    for format in [Format::F16, Format::Bf16] {
        let numbers = every(format);
        for scale in SCALES.map(|scale| LossScale::new(scale).unwrap()) {
            let mut expected = numbers.clone();
            let outcome = step(&mut [TensorBits::new(format, &mut expected)], scale, None);
            assert!(!outcome.found_inf && expected != numbers);
            for (gpu, offset) in common::gpus().iter().flat_map(|gpu| [0, 4].map(|offset| (gpu, offset))) {
                let image = [&vec![0xff; offset], &numbers[..]].concat();
                let buffer = common::runner::upload(&gpu.context, &image);
                let slice = TensorSlice {
                    buffer: &buffer,
                    offset: offset as u64,
                    len: numbers.len() as u64 / 2,
                    format,
                };
                let set = GradSet::builder("set").tensor("numbers", slice).build(&gpu.context).unwrap();
                let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
                set.record(&mut encoder, scale, None).unwrap();
                gpu.context.queue().submit([encoder.finish()]);
                let got = common::runner::download(&gpu.context, &buffer).unwrap();
                let differs = |i: &usize| got[offset + 2 * i..][..2] != expected[2 * i..][..2];
                if let Some(i) = (0..numbers.len() / 2).find(differs) {
                    let bits = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
                    panic!(
                        "{}: {format} {:04x} / {} at offset {offset} is {:04x}, expected {:04x}",
                        common::adapters::label(&gpu.info),
                        bits(&numbers[2 * i..]),
                        scale.get(),
                        bits(&got[offset + 2 * i..]),
                        bits(&expected[2 * i..])
                    );
                }
            }
        }
    }
}
