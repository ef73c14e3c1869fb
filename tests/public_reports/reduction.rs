//! Kind K: barriers and the tree of partial sums.

use gradclip::LossScale;

use crate::common::adapters;
use crate::support::{each_gpu, f32_set, f32s, reads, run, step, upload};

#[test]
fn k01_lengths_around_a_workgroup() {
    for (len, norm, decimal) in [
        (257, 0x4180_3ff0, "16.0312195"),
        (255, 0x417f_7fe0, "15.9687194"),
        (1, 0x3f80_0000, "1"),
        (256, 0x4180_0000, "16"),
    ] {
        let answer = step(&format!("K01, {len}"), [f32s(&vec![1.0; len])]).keeps(f32::from_bits(norm).into());
        reads(answer.norm, decimal);
    }
}

#[test]
fn k02_one_to_sixty_four() {
    let values: Vec<f32> = (1u8..=64).map(f32::from).collect();
    let answer = step("K02", [f32s(&values)]).keeps(f32::from_bits(0x4395_8859).into());
    reads(answer.norm, "299.065210");
    assert_eq!(values.iter().map(|v| v * v).sum::<f32>(), 89_440.0);
}

/// Each lane counts once, wherever it stands: 64 elements as in the report, and as many as a workgroup has
/// threads.
#[test]
fn k08_a_single_one_at_every_position() {
    each_gpu(|gpu| {
        for len in [64, 256] {
            let buffers = upload(gpu, &[f32s(&vec![0.0; len])]);
            let set = f32_set(gpu, &buffers);
            for position in 0..len {
                let mut values = vec![0.0; len];
                values[position] = 1.0;
                gpu.context.queue().write_buffer(&buffers[0], 0, &f32s(&values).1);
                let norm = run(gpu, &set, LossScale::ONE, None).total_norm;
                assert_eq!(norm, Some(1.0), "{position} of {len}, {}", adapters::label(&gpu.info));
            }
        }
    });
}
