//! Sizes at and beyond every limit.

use gradclip::Format;
use gradclip::plan::{MAX_ELEMENTS, MAX_TILE_WORDS, PlanLimits, PlanTensor};

use crate::{arena, limits, own_buffers, plan};

#[test]
fn plans_2_to_the_33_elements() {
    for format in Format::ALL {
        let tensors = own_buffers(format, &[1 << 33]);
        let windows = (format.size() << 33) / (128 << 20);
        // 4 storage buffers leave one window a dispatch, 8 leave five. 2^28 elements fill a dispatch.
        let five = if format == Format::F32 { windows.div_ceil(5) } else { 32 };
        for (per_dispatch, dispatches) in [(1, windows), (5, five)] {
            let plan = plan(&tensors, &limits(|l| l.windows_per_dispatch = per_dispatch));
            assert_eq!(plan.windows.len() as u64, windows);
            assert_eq!(plan.dispatches.len() as u64, dispatches);
        }
    }
}

#[test]
fn plans_2_to_the_33_elements_in_many_tensors() {
    // One element too few or too many, so that tensors cross the windows' borders and 16-bit ones end in mid-word.
    let lens: Vec<u64> = (0..8192).map(|i| (1 << 20) - 1 + i % 2 * 2).collect();
    assert_eq!(lens.iter().sum::<u64>(), 1 << 33);
    for format in Format::ALL {
        plan(&own_buffers(format, &lens), &PlanLimits::webgpu());
        plan(&arena(format, &lens, 0), &PlanLimits::webgpu());
        plan(&arena(format, &lens, 12), &limits(|l| l.windows_per_dispatch = 1));
    }
}

/// A window of many tiles is alone in its dispatches; the others are packed together.
#[test]
fn windows_of_many_tiles_are_alone() {
    let limits = limits(|l| (l.tile_words, l.lone_window_tiles) = (100, 8));
    let plan = plan(&own_buffers(Format::F32, &[800, 796, 52, 4, 900, 796]), &limits);
    let windows: Vec<_> = plan.dispatches.iter().map(|d| d.windows.clone()).collect();
    assert_eq!(windows, [vec![0], vec![1, 2, 3], vec![4], vec![5]]);
}

#[test]
fn plans_the_most_elements_that_a_norm_can_cover() {
    plan(&own_buffers(Format::F32, &[MAX_ELEMENTS - 1]), &PlanLimits::webgpu());
    let halves = [MAX_ELEMENTS / 2, MAX_ELEMENTS / 2 - 1];
    plan(&own_buffers(Format::Bf16, &halves), &limits(|l| l.window_bytes = u64::MAX));
}

/// Group numbers take two dimensions, and where even these are too few, another dispatch.
#[test]
fn tiles_beyond_one_and_two_dimensions() {
    for groups in [1, 2, 3, 255] {
        for len in [1, 2, 3, 4, 5, 8, 9, 10, 65_024, 65_025, 65_026, 200_000] {
            let limits =
                limits(|l| (l.groups_per_dimension, l.tile_words, l.lone_window_tiles) = (groups, 1, 9));
            let plan = plan(&own_buffers(Format::F32, &[len]), &limits);
            let square = u64::from(groups) * u64::from(groups);
            assert_eq!(plan.dispatches.len() as u64, len.div_ceil(square), "{groups} groups, {len} tiles");
        }
    }
}

#[test]
fn a_full_grid_of_65535_by_65535_groups() {
    let limits = limits(|l| {
        l.tile_words = 1;
        l.window_bytes = u64::MAX;
        l.windows_per_dispatch = 16;
        l.elements_per_dispatch = u64::MAX;
        l.lone_window_tiles = u64::MAX;
    });
    let square = 65_535 * 65_535;
    let one = plan(&own_buffers(Format::F32, &[square]), &limits);
    assert_eq!(one.dispatches.len(), 1);
    assert_eq!(one.dispatches[0].groups, (65_535, 65_535));
    let two = plan(&own_buffers(Format::F32, &[square + 1]), &limits);
    assert_eq!(two.dispatches.iter().map(|d| d.groups).collect::<Vec<_>>(), [(65_535, 65_535), (1, 1)]);
}

/// The kernels number groups in 32 bits: where more fit a dimension than WebGPU promises, the last row must not wrap.
#[test]
fn group_numbers_never_wrap() {
    for groups in [65_536, 100_000, 1 << 20, u32::MAX] {
        let limits = limits(|l| {
            l.tile_words = 1;
            l.groups_per_dimension = groups;
            l.window_bytes = u64::MAX;
            l.windows_per_dispatch = 16;
            l.elements_per_dispatch = u64::MAX;
            l.lone_window_tiles = u64::MAX;
        });
        plan(&own_buffers(Format::F32, &[(1 << 32) - 2]), &limits);
    }
}

/// The smallest numbers that are still legal, so that every cut happens.
#[test]
fn the_smallest_limits() {
    let limits = limits(|l| {
        (l.window_bytes, l.window_align) = (4, 4);
        (l.windows_per_dispatch, l.groups_per_dimension) = (1, 1);
        (l.elements_per_dispatch, l.tile_words) = (1, 1);
    });
    for (format, windows) in [(Format::F32, 7), (Format::F16, 4), (Format::Bf16, 4)] {
        let plan = plan(&own_buffers(format, &[7]), &limits);
        assert_eq!(plan.windows.len(), windows);
        assert_eq!(plan.dispatches.len(), windows);
    }
}

/// 16-bit tensors end in mid-word, and are cut only between words.
#[test]
fn odd_tensors_of_two_formats_in_one_arena() {
    let formats = [Format::F16, Format::F32, Format::Bf16, Format::F16];
    let mut tensors = Vec::new();
    let mut offset = 4;
    for (i, &format) in formats.iter().cycle().take(40).enumerate() {
        let tensor = PlanTensor::new(0, offset, i as u64 * 3 % 11, format);
        offset = tensor.end();
        tensors.push(tensor);
    }
    for window_bytes in [4, 8, 12, 64, 1 << 20] {
        for tile_words in [1, 2, 5] {
            let limits = limits(|l| {
                (l.window_bytes, l.window_align, l.tile_words) = (window_bytes, 4, tile_words);
            });
            plan(&tensors, &limits);
        }
    }
}

/// Shapes decide, so the order of tensors changes no window.
#[test]
fn windows_do_not_depend_on_the_order_of_tensors() {
    let mut tensors = arena(Format::F32, &[100, 7, 3000, 1, 512], 20);
    let limits = limits(|l| (l.window_bytes, l.tile_words) = (1024, 64));
    let windows = plan(&tensors, &limits).windows;
    tensors.reverse();
    assert_eq!(plan(&tensors, &limits).windows, windows);
}

/// Larger tiles than the digit sums allow are cut down, more windows than a kernel exists for as well.
#[test]
fn too_generous_limits_are_capped() {
    let limits = limits(|l| (l.tile_words, l.windows_per_dispatch) = (u32::MAX, u32::MAX));
    let plan = plan(&own_buffers(Format::F32, &[70_000; 40]), &limits);
    assert_eq!(plan.tile_words, MAX_TILE_WORDS);
    assert_eq!(plan.dispatches.iter().map(|d| d.windows.len()).collect::<Vec<_>>(), [16, 16, 8]);
}

/// Tensors at multiples of 16 bytes are read in quads, and what is left of a long one word by word; others are words whole.
#[test]
fn quads_where_they_fit() {
    use gradclip::plan::Access::{Quads, Words};
    let accesses = |format, offset, len, limits: &PlanLimits| {
        let tensor = PlanTensor::new(0, offset, len, format);
        let plan = plan(&[tensor], limits);
        let segments = plan.dispatches.iter().zip(&plan.segments);
        segments.map(|(dispatch, segment)| (dispatch.access, segment.len)).collect::<Vec<_>>()
    };
    let webgpu = PlanLimits::webgpu();
    for format in Format::ALL {
        let per_word = format.per_word() as u32;
        let of = |words: u32| u64::from(words * per_word);
        assert_eq!(accesses(format, 0, of(400), &webgpu), [(Quads, 400 * per_word)]);
        assert_eq!(accesses(format, 48, of(400), &webgpu), [(Quads, 400 * per_word)]);
        for offset in [4, 8, 12, 20] {
            assert_eq!(accesses(format, offset, of(400), &webgpu), [(Words, 400 * per_word)]);
        }
        assert_eq!(accesses(format, 0, of(401), &webgpu), [(Words, 401 * per_word)]);
        let long = accesses(format, 0, of(16_387), &webgpu);
        assert_eq!(long, [(Quads, 16_384 * per_word), (Words, 3 * per_word)]);
        assert_eq!(accesses(format, 0, of(400), &limits(|l| l.tile_words = 1022)), [(Words, 400 * per_word)]);
        assert_eq!(accesses(format, 0, of(400), &limits(|l| l.window_align = 8)), [(Words, 400 * per_word)]);
    }
    // The last word of an odd tensor is its own by half.
    let odd = accesses(Format::F16, 0, 2 * 16_388 - 1, &webgpu);
    assert_eq!(odd, [(Quads, 2 * 16_384), (Words, 7)]);
}
