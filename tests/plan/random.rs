//! Random tensors and limits against the checker.

use gradclip::Format;
use gradclip::plan::{Plan, PlanLimits, PlanTensor};
use proptest::prelude::*;

use crate::{check, limits};

/// Tensors that do not overlap, in a few buffers, in any order.
fn tensors(longest: u64) -> impl Strategy<Value = Vec<PlanTensor>> {
    let len = prop_oneof![1 => Just(0), 4 => 1u64..40, 3 => 0..=longest];
    let gap = prop_oneof![Just(0u64), 1u64..100, Just(5000)];
    let one = (0usize..4, gap, len, prop::sample::select(&Format::ALL[..]));
    prop::collection::vec(one, 0..12)
        .prop_map(|drawn| {
            let mut ends = [0; 4];
            drawn
                .into_iter()
                .map(|(buffer, gap, len, format)| {
                    let tensor = PlanTensor::new(buffer, ends[buffer] + gap * 4, len, format);
                    ends[buffer] = tensor.end();
                    tensor
                })
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

fn small_limits() -> impl Strategy<Value = PlanLimits> {
    let cap = prop_oneof![1u64..300, Just(u64::MAX)];
    let lone = prop_oneof![Just(0u64), 1u64..30, Just(u64::MAX)];
    let align = prop::sample::select(vec![0u64, 1, 4, 32, 256]);
    let groups = prop_oneof![1u32..20, Just(65_535)];
    (align, 1u64..5000, 1u32..20, groups, cap, 1u32..300, lone).prop_map(
        |(align, bytes, windows, groups, cap, tile_words, lone)| {
            limits(|l| {
                l.window_align = align;
                l.window_bytes = bytes.max(align).max(4);
                l.windows_per_dispatch = windows;
                l.groups_per_dimension = groups;
                l.elements_per_dispatch = cap;
                l.tile_words = tile_words;
                l.lone_window_tiles = lone;
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn small_limits_cut_without_gap_or_overlap(tensors in tensors(3000), limits in small_limits()) {
        let plan = Plan::new(&tensors, &limits).unwrap();
        check::check(&tensors, &limits, &plan);
    }

    #[test]
    fn large_tensors_cut_without_gap_or_overlap(tensors in tensors(1 << 32), windows in 1u32..9) {
        let limits = limits(|l| l.windows_per_dispatch = windows);
        let plan = Plan::new(&tensors, &limits).unwrap();
        check::check(&tensors, &limits, &plan);
    }
}
