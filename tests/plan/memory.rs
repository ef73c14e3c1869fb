//! What a set needs beside the gradients: at most 0.2 % of their bytes plus 64 KiB.

use gradclip::plan::{PARTIAL_BYTES, Plan, PlanLimits, PlanTensor};
use gradclip::{Format, Verdict};

use crate::{arena, limits, own_buffers, plan};

/// Bytes of a uniform slot and of a spare window.
const SLOT: u64 = 256;
/// Bytes of the counts of one tensor.
const CENSUS_BYTES: u64 = 36;

/// Partials, table, uniforms, spare windows and the report.
fn own_bytes(plan: &Plan, tensors: usize) -> u64 {
    let widest = plan.dispatches.iter().map(|d| d.windows.len()).max().unwrap_or(1) as u64;
    u64::from(plan.tiles.max(1)) * PARTIAL_BYTES
        + plan.table().len() as u64 * 4
        + (plan.dispatches.len() as u64 + 1 + widest) * SLOT
        + size_of::<Verdict>() as u64
        + tensors as u64 * CENSUS_BYTES
}

/// The shapes of GPT-2 small (124 M parameters) with its matrices cut in two: 300 tensors or so.
fn gpt2() -> Vec<u64> {
    let width = 768;
    let mut lens = vec![50_257 * width, 1024 * width, width, width];
    for _ in 0..12 {
        let matrices = [width * 3 * width, width * width, width * 4 * width, 4 * width * width];
        lens.extend(matrices.iter().flat_map(|&len| [len / 4; 4]));
        lens.extend([width, width, 3 * width, width, width, width, 4 * width, width]);
    }
    lens
}

#[test]
fn memory_beside_the_gradients() {
    let lens = gpt2();
    let elements: u64 = lens.iter().sum();
    assert!((290..=310).contains(&lens.len()), "{}", lens.len());
    assert!((124_000_000..125_000_000).contains(&elements), "{elements}");
    for format in Format::ALL {
        let promised = elements * format.size() / 500 + 65_536;
        for tensors in [own_buffers(format, &lens), arena(format, &lens, 0)] {
            // The second is what a CPU driver gets.
            let cpu = limits(|l| (l.tile_words, l.lone_window_tiles) = (65_536, 8));
            for limits in [PlanLimits::webgpu(), cpu, limits(|l| l.windows_per_dispatch = 1)] {
                let bytes = own_bytes(&plan(&tensors, &limits), tensors.len());
                assert!(bytes <= promised, "{format}: {bytes} bytes, {promised} promised");
            }
        }
    }
}

#[test]
fn memory_beside_one_large_tensor() {
    for format in Format::ALL {
        for shift in [0, 10, 20, 27, 33] {
            let tensors = [PlanTensor::new(0, 0, 1 << shift, format)];
            let bytes = own_bytes(&plan(&tensors, &PlanLimits::webgpu()), 1);
            let promised = (format.size() << shift) / 500 + 65_536;
            assert!(bytes <= promised, "{format}, 2^{shift} elements: {bytes} bytes, {promised} promised");
        }
    }
}
