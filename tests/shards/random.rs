//! Random gradients, cut at random places, spread over the adapters of this machine.

use gradclip::{ClipNorm, Ledger, LossScale, NormType, R24, reference};
use proptest::prelude::*;

use crate::common::adapters::label;
use crate::common::gpus;
use crate::inputs;
use crate::parts::{Part, bits, cut, join, merge, on_reference};

/// Ends of parts in 16ths; empty parts too.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..=16usize, 0..7).prop_map(|mut cuts| {
        cuts.extend([0, 16]);
        cuts.sort_unstable();
        cuts
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Part i lies on adapter i, i + 1, ...: so several devices take part in each step.
    #[test]
    fn parts_make_the_step_of_the_whole(set in inputs::any_set(), cuts in cuts(), l1 in any::<bool>()) {
        let input = set.input();
        let norm_type = if l1 { NormType::L1 } else { NormType::L2 };
        let clip = input.clip.map(|c| c.with_norm_type(norm_type)).unwrap_or(unlimited(norm_type));
        // What a sharded step cannot tell is refused; see misuse.rs.
        prop_assume!(clip.max_norm() < 65504.0 || clip.max_norm() == f32::INFINITY);
        let clip = Some(clip);
        let (want, want_bytes) = on_reference(&input.tensors, input.scale, clip);
        let parts = cut(&input.tensors, &cuts);

        // The CPU's twin of it.
        let mut bytes: Vec<Vec<Vec<u8>>> =
            parts.iter().map(|part| part.iter().map(|t| t.1.clone()).collect()).collect();
        let ledgers: Vec<Ledger> = parts
            .iter()
            .zip(&mut bytes)
            .map(|(part, bytes)| reference::ledger(&bits(part, bytes), input.scale, clip).unwrap())
            .collect();
        let merged = merge(&ledgers);
        for (part, bytes) in parts.iter().zip(&mut bytes) {
            let outcome = reference::step_merged(&mut bits(part, bytes), &merged, clip).unwrap();
            prop_assert_eq!(
                (outcome.found_inf, outcome.overflow, outcome.total_norm, outcome.coefficient, outcome.factor),
                (want.found_inf, want.overflow, want.total_norm, want.coefficient, want.factor)
            );
        }
        prop_assert_eq!(&join(&bytes), &want_bytes);

        let gpus = gpus();
        for first in 0..gpus.len() {
            let on = |i: usize| &gpus[(first + i) % gpus.len()];
            let placed: Vec<Part> =
                parts.iter().enumerate().map(|(i, part)| Part::new(&on(i).context, part)).collect();
            let measured: Vec<Ledger> =
                placed.iter().map(|part| part.measure(input.scale, clip).unwrap()).collect();
            for (i, (measured, ledger)) in measured.iter().zip(&ledgers).enumerate() {
                prop_assert_eq!(measured, ledger, "part {} on {}", i, label(&on(i).info));
            }
            // As an all-reduce would add them up.
            let mut words = [0u64; Ledger::WORDS];
            for ledger in &measured {
                words.iter_mut().zip(ledger.to_words()).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
            }
            let reduced = Ledger::from_words(&words).unwrap();
            prop_assert_eq!(&reduced, &merged);
            for (i, part) in placed.iter().enumerate() {
                let who = label(&on(i).info);
                let report = part.finish(&reduced).unwrap();
                let (norm, factor) = (report.total_norm.unwrap_or(0.0), report.factor.unwrap_or(0.0));
                let outcome = (report.found_inf, report.overflow, norm, factor);
                let wanted = (want.found_inf, want.overflow, want.total_norm.to_f64(), want.factor.to_f64());
                prop_assert_eq!(outcome, wanted, "part {} on {}", i, who);
                let found: Vec<_> = parts[i]
                    .iter()
                    .map(|(format, bytes)| reference::norm_partials::census(*format, bytes))
                    .collect();
                if !want.overflow {
                    prop_assert_eq!(crate::common::found(&report), crate::common::bad(&found), "part {} on {}", i, who);
                }
            }
            let got: Vec<Vec<Vec<u8>>> = placed.iter().map(Part::bytes).collect();
            prop_assert_eq!(&join(&got), &want_bytes, "from {}", label(&on(0).info));
        }
    }
}

fn unlimited(norm_type: NormType) -> ClipNorm {
    ClipNorm::new(f32::INFINITY).unwrap().with_norm_type(norm_type)
}

#[test]
fn no_elements_are_a_part_too() {
    let none = vec![];
    let ledger = reference::ledger(&[], LossScale::ONE, None).unwrap();
    assert_eq!((ledger.parts(), ledger.elements(), ledger.total_norm()), (1, 0, Some(R24::ZERO)));
    for gpu in gpus() {
        let part = Part::new(&gpu.context, &none);
        assert_eq!(part.measure(LossScale::ONE, None).unwrap(), ledger);
        assert_eq!(part.finish(&ledger).unwrap().total_norm, Some(0.0));
    }
}
