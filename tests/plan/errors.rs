//! What the planner refuses, and that it refuses instead of overflowing.

use gradclip::plan::{MAX_ELEMENTS, Plan, PlanLimits, PlanTensor};
use gradclip::{Error, Format};

use crate::{limits, own_buffers};

#[test]
fn limits_that_leave_room_for_nothing_are_named() {
    type Change = fn(&mut PlanLimits);
    let cases: [(&str, Change); 7] = [
        ("window_bytes", |l| l.window_bytes = 0),
        ("window_bytes", |l| l.window_bytes = 255),
        ("window_bytes", |l| l.window_align = u64::MAX),
        ("windows_per_dispatch", |l| l.windows_per_dispatch = 0),
        ("groups_per_dimension", |l| l.groups_per_dimension = 0),
        ("elements_per_dispatch", |l| l.elements_per_dispatch = 0),
        ("tile_words", |l| l.tile_words = 0),
    ];
    for (limit, change) in cases {
        for tensors in [vec![], own_buffers(Format::F32, &[3])] {
            let error = Plan::new(&tensors, &limits(change)).unwrap_err();
            assert_eq!(error, Error::ZeroLimit { limit });
            assert!(error.to_string().starts_with(&format!("PlanLimits::{limit} ")), "{error}");
        }
    }
}

#[test]
fn too_many_elements_for_one_norm() {
    for lens in [vec![MAX_ELEMENTS], vec![MAX_ELEMENTS / 2; 2], vec![1, MAX_ELEMENTS - 1]] {
        let error = Plan::new(&own_buffers(Format::F16, &lens), &PlanLimits::webgpu()).unwrap_err();
        assert_eq!(error, Error::TooManyElements { elements: 1 << 39 });
    }
    for lens in [[u64::MAX, 0], [u64::MAX, u64::MAX], [1, u64::MAX]] {
        let error = Plan::new(&own_buffers(Format::F32, &lens), &PlanLimits::webgpu()).unwrap_err();
        assert_eq!(error, Error::TooManyElements { elements: u64::MAX });
    }
}

#[test]
fn too_many_tiles_to_number() {
    for (format, most) in [(Format::F32, (1 << 32) - 2), (Format::Bf16, ((1 << 32) - 2) * 2)] {
        let limits = limits(|l| l.tile_words = 1);
        crate::plan(&own_buffers(format, &[most]), &limits);
        for lens in [vec![most + 1], vec![most, 1], vec![1, most], vec![1 << 38]] {
            let error = Plan::new(&own_buffers(format, &lens), &limits).unwrap_err();
            assert_eq!(error, Error::TooManyTiles { tile_words: 1 });
        }
    }
}

/// Offsets that no buffer has are the caller's to refuse; here they must not panic.
#[test]
fn extreme_offsets_do_not_overflow() {
    let top = u64::MAX - 3;
    for offset in [top, top - 4, top - 256, u64::MAX - (1 << 27), u64::MAX / 2, 1 << 63] {
        for len in [0, 1, 2, 1000, 1 << 32] {
            for format in Format::ALL {
                let tensor = PlanTensor::new(usize::MAX, offset / 4 * 4, len, format);
                let _ =
                    Plan::new(&[tensor, PlanTensor::new(usize::MAX, 0, len, format)], &PlanLimits::webgpu());
            }
        }
    }
}
