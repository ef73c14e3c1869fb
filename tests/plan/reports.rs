//! Cases of public reports that the planner can show. Each test's name carries the report's id.

use gradclip::Format;
use gradclip::plan::{OWN_STORAGE_BUFFERS, PlanLimits, PlanTensor};

use crate::{arena, limits, own_buffers, plan};

fn sizes(plan: &gradclip::plan::Plan) -> Vec<u64> {
    plan.windows.iter().map(|w| w.size).collect()
}

#[test]
fn g01_empty_tensors_between_others_shift_nothing() {
    let tensors = own_buffers(Format::F32, &[5, 3, 0, 0, 7]);
    // At most two elements a dispatch, and a tile is one word.
    let small = limits(|l| (l.elements_per_dispatch, l.tile_words) = (2, 1));
    for limits in [PlanLimits::webgpu(), small] {
        let plan = plan(&tensors, &limits);
        let mut tensors: Vec<usize> = plan.segments.iter().map(|s| s.tensor).collect();
        tensors.dedup();
        assert_eq!(tensors, [0, 1, 4]);
    }
    assert_eq!(plan(&tensors, &small).dispatches.len(), 8);
}

#[test]
fn g02_empty_tensors_at_the_end_lose_no_dispatch() {
    for count in 0..6 {
        let lens = [vec![1, 1], vec![0; count]].concat();
        for windows in 1..=3 {
            let limits = limits(|l| l.windows_per_dispatch = windows);
            let plan = plan(&own_buffers(Format::F32, &lens), &limits);
            assert_eq!(plan.dispatches.len(), if windows == 1 { 2 } else { 1 });
        }
    }
}

#[test]
fn h01_a_count_beyond_31_bits() {
    let plan = plan(&own_buffers(Format::F32, &[2_476_250_368]), &PlanLimits::webgpu());
    assert_eq!(plan.windows.len(), 74);
    assert_eq!(plan.windows[73].size, 107_107_328);
    for (i, window) in (0..).zip(&plan.windows) {
        assert_eq!((window.offset, window.offset % 256), (i * 134_217_728, 0));
    }
    let last = plan.segments.last().unwrap();
    assert_eq!(last.element + u64::from(last.len), 2_476_250_368);
}

#[test]
fn h03_more_groups_than_one_dimension_holds() {
    let limits = limits(|l| l.tile_words = 256);
    let plan = plan(&own_buffers(Format::F32, &[16_776_964]), &limits);
    assert_eq!(plan.tiles, 65_536);
    assert_eq!(plan.dispatches.len(), 1);
    assert_eq!(plan.dispatches[0].groups, (65_535, 2));
}

#[test]
fn h05_a_binding_of_exactly_128_mib_and_one_element_more() {
    let full = plan(&own_buffers(Format::F32, &[1 << 25]), &PlanLimits::webgpu());
    assert_eq!(sizes(&full), [134_217_728]);
    let more = plan(&own_buffers(Format::F32, &[(1 << 25) + 1]), &PlanLimits::webgpu());
    assert_eq!(sizes(&more), [134_217_728, 4]);
}

#[test]
fn h06_windows_start_aligned_whatever_the_binding_limit() {
    let limits = limits(|l| l.window_bytes = 100_000);
    let plan = plan(&own_buffers(Format::F32, &[40_000]), &limits);
    assert_eq!(sizes(&plan), [99_840, 60_160]);
    assert_eq!(plan.windows[1].offset, 99_840);
}

#[test]
fn h08_windows_stay_below_2_gib() {
    for reported in [1 << 31, 1 << 32, u64::MAX] {
        let limits = limits(|l| l.window_bytes = reported);
        let plan = plan(&own_buffers(Format::F32, &[3 << 29]), &limits);
        assert_eq!(sizes(&plan)[0], (1 << 31) - 256);
    }
}

/// Metal keeps one storage slot, so a plan never uses the last.
#[test]
fn l01_one_storage_buffer_is_left_free() {
    let tensors = own_buffers(Format::F32, &[1; 100]);
    let webgpu = PlanLimits::webgpu();
    assert_eq!(webgpu.windows_per_dispatch, 5);
    for (buffers, windows, dispatches) in [(8, webgpu.windows_per_dispatch, 20), (4, 1, 100)] {
        assert!(windows + OWN_STORAGE_BUFFERS < buffers);
        let plan = plan(&tensors, &limits(|l| l.windows_per_dispatch = windows));
        assert_eq!(plan.dispatches.len(), dispatches);
    }
}

/// A device with default limits aligns to 256 bytes even where its adapter could do 32.
#[test]
fn l03_alignment_is_the_given_one() {
    let tensors = [32, 288, 1 << 28].map(|offset| PlanTensor::new(0, offset, 8, Format::F32));
    let (fine, coarse) = (limits(|l| l.window_align = 32), PlanLimits::webgpu());
    assert_eq!(coarse.window_align, 256);
    let offsets = |limits| plan(&tensors, limits).windows.iter().map(|w| w.offset).collect::<Vec<_>>();
    assert_eq!(offsets(&fine), [32, 1 << 28]);
    assert_eq!(offsets(&coarse), [0, 1 << 28]);
}

/// Any 4-byte offset is reached through an aligned window and a word index.
#[test]
fn l04_slices_start_at_any_word() {
    let first = PlanTensor::new(0, 0, 3, Format::F32);
    let plan = plan(&[first, PlanTensor::new(0, 12, 5, Format::F32)], &PlanLimits::webgpu());
    assert_eq!(plan.windows.len(), 1);
    assert_eq!(plan.segments.iter().map(|s| s.word).collect::<Vec<_>>(), [0, 3]);
}

/// Two slices of one buffer share one binding, since two writable bindings of a buffer may not overlap.
#[test]
fn l07_slices_of_one_buffer_share_a_window() {
    let plan = plan(&arena(Format::F32, &[64, 8], 0), &PlanLimits::webgpu());
    assert_eq!((plan.windows.len(), plan.dispatches.len()), (1, 1));
}

#[test]
fn n03_nothing_is_dispatched_for_nothing() {
    for tensors in [vec![], own_buffers(Format::F32, &[0]), own_buffers(Format::Bf16, &[0; 40])] {
        let plan = plan(&tensors, &PlanLimits::webgpu());
        assert!(plan.dispatches.is_empty() && plan.windows.is_empty());
        assert_eq!((plan.tiles, plan.table().len()), (0, 1), "a binding cannot be empty");
    }
    for format in Format::ALL {
        let plan = plan(&own_buffers(format, &[1]), &PlanLimits::webgpu());
        assert_eq!(plan.dispatches.len(), 1);
        assert_eq!(plan.dispatches[0].groups, (1, 1));
        assert_eq!(plan.windows[0].size, 4);
    }
}

#[test]
fn n04_no_dispatch_runs_into_a_watchdog() {
    for format in Format::ALL {
        let limits = PlanLimits::webgpu();
        let plan = plan(&own_buffers(format, &[(16 << 30) / format.size()]), &limits);
        let most = plan.dispatches.iter().map(|d| {
            let tiles = u64::from(d.tiles);
            tiles * u64::from(plan.tile_words) * format.per_word()
        });
        assert!(plan.dispatches.len() >= 16, "{}", plan.dispatches.len());
        assert!(most.max().unwrap() <= 1 << 28);
    }
}
