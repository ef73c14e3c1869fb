//! Ranks: the same decision, the same refusal, from the merged ledger.

use gradclip::reference::{TensorBits, ledger, step_merged};
use gradclip::{Error, Format, GradScaler, Joint, Ledger, Limit, ScalerConfig, Unscale};

use crate::support::{Rig, floats, gpus, scaler};

fn merge(ledgers: &[Ledger]) -> Ledger {
    let mut words = [0u64; Ledger::WORDS];
    for ledger in ledgers {
        for (sum, word) in words.iter_mut().zip(ledger.to_words()) {
            *sum = sum.wrapping_add(word);
        }
    }
    Ledger::from_words(&words).unwrap()
}

#[test]
fn a_divisor_and_a_threshold_of_all_parts() {
    for gpu in gpus() {
        let ranks = [24.0 * 3.0, 32.0 * 3.0].map(|g| Rig::new(&gpu.context, "part", &[g]));
        let unscale = || Unscale::by(8.0).divide_by(3.0);
        for (most, above) in [(6.0, false), (4.0, true)] {
            let limit = || Limit::norm(1.0).eps(0.0).skip_above(most);
            let ledgers = ranks.each_ref().map(|rank| {
                rank.run(|encoder| rank.set.record_ledger(encoder, unscale(), limit()).unwrap());
                rank.set.read_ledger().unwrap()
            });
            let merged = merge(&ledgers);
            assert_eq!((merged.divisor(), merged.parts()), (3.0, 2));
            for (rank, own) in ranks.iter().zip(&ledgers) {
                let before = rank.gradients();
                let mut bytes = crate::common::f32s(&before);
                let mut tensors = [TensorBits::new(Format::F32, &mut bytes)];
                assert_eq!(&ledger(&tensors, unscale(), limit()).unwrap(), own, "{}", gpu.info.name);
                let outcome = step_merged(&mut tensors, &merged, limit()).unwrap();
                rank.run(|encoder| rank.set.record_merged(encoder, &merged).unwrap());
                assert_eq!(rank.gradients(), floats(&bytes), "{}", gpu.info.name);
                let report = rank.set.read_report().unwrap();
                assert_eq!((report.above, outcome.above, report.skipped), (above, above, above));
                assert_eq!(report.total_norm, Some(outcome.total_norm.to_f64()));
            }
            ranks[0].put(&[72.0]);
            ranks[1].put(&[96.0]);
        }
        // What was told differently is noticed.
        let told = [Unscale::by(8.0).divide_by(3.0), Unscale::by(8.0).divide_by(2.0)];
        let mut ledgers = ranks.iter().zip(told).map(|(rank, unscale)| {
            rank.run(|encoder| rank.set.record_ledger(encoder, unscale, Limit::none()).unwrap());
            rank.set.read_ledger().unwrap()
        });
        let (mut a, b) = (ledgers.next().unwrap(), ledgers.next().unwrap());
        assert!(matches!(a.merge(&b), Err(Error::Ledger { .. })));
    }
}

/// A deferred step does not skip for an overflow that nobody writes, on any rank; and the mode is part of what is told.
#[test]
fn a_deferred_step_does_not_overflow() {
    for gpu in gpus() {
        let rank = Rig::new(&gpu.context, "part", &[3e38]);
        rank.run(|encoder| rank.set.record_ledger(encoder, 0.5, Limit::none()).unwrap());
        let in_place = rank.set.read_ledger().unwrap();
        assert_eq!(in_place.overflowing(), 1);
        rank.run(|encoder| rank.set.record_ledger_deferred(encoder, 0.5, Limit::none()).unwrap());
        let deferred = rank.set.read_ledger().unwrap();
        assert_eq!(deferred.overflowing(), 0);
        assert!(matches!(deferred.clone().merge(&in_place), Err(Error::Ledger { .. })));
        rank.run(|encoder| rank.set.record_merged(encoder, &deferred).unwrap());
        let verdict = rank.set.read_verdict().unwrap();
        assert_eq!((verdict.skip, verdict.apply), (0, 1), "{}", gpu.info.name);
        assert_eq!(rank.gradients(), [3e38]);
        // The same with one device.
        rank.run(|encoder| rank.set.record_deferred(encoder, 0.5, Limit::none()).unwrap());
        assert_eq!(rank.set.read_verdict().unwrap().skip, 0);
        rank.run(|encoder| rank.set.record(encoder, 0.5, Limit::none()).unwrap());
        assert_eq!(rank.set.read_verdict().unwrap().overflow, 1);
    }
}

/// Every rank refuses the same `begin`, without hearing from its GPU.
#[test]
fn all_ranks_stop_in_the_same_step() {
    for gpu in gpus() {
        let config = ScalerConfig { max_consecutive_skipped: Some(2), ..ScalerConfig::constant(1.0) };
        let ranks: Vec<(Rig, GradScaler)> = [f32::NAN, 1.0]
            .map(|g| (Rig::new(&gpu.context, "part", &[g]), scaler(&gpu.context, config)))
            .into();
        for round in 0..3 {
            let begun: Vec<_> = ranks.iter().map(|(rank, scaler)| scaler.begin(&rank.set)).collect();
            if round == 2 {
                assert!(begun.iter().all(|step| matches!(step, Err(Error::TooManySkipped { skipped: 2 }))));
                continue;
            }
            let mut halves = Vec::new();
            for ((rank, _), step) in ranks.iter().zip(begun) {
                rank.run(|encoder| halves.push(step.unwrap().unscale().record_ledger(encoder).unwrap()));
            }
            let ledgers: Vec<Ledger> = halves.iter().map(|half| half.read_ledger().unwrap()).collect();
            let merged = merge(&ledgers);
            for ((rank, scaler), half) in ranks.iter().zip(halves) {
                rank.run(|encoder| {
                    let step = half.record(encoder, &merged).unwrap();
                    scaler.update(encoder, [step]).unwrap();
                });
            }
        }
        for (_, scaler) in &ranks {
            assert_eq!(scaler.state_dict().unwrap().skipped, 2, "{}", gpu.info.name);
        }
    }
}

/// A part that lies in several sets under one norm.
#[test]
fn a_joint_norm_can_be_sharded() {
    for gpu in gpus() {
        let rigs = ["a", "b", "c"].map(|name| Rig::new(&gpu.context, name, &[8.0]));
        let scalers = [(); 2].map(|()| scaler(&gpu.context, ScalerConfig::constant(8.0)));
        let joint = Joint::new([&rigs[0].set, &rigs[1].set]).unwrap();
        let limit = || Limit::norm(1.0).eps(0.0);
        let mut halves = Vec::new();
        let steps = [scalers[0].begin(&joint).unwrap(), scalers[1].begin(&rigs[2].set).unwrap()];
        for step in steps {
            rigs[0].run(|encoder| halves.push(step.unscale().limit(limit()).record_ledger(encoder).unwrap()));
        }
        let ledgers: Vec<Ledger> = halves.iter().map(|half| half.read_ledger().unwrap()).collect();
        let merged = merge(&ledgers);
        assert_eq!(merged.parts(), 3);
        for (half, scaler) in halves.into_iter().zip(&scalers) {
            rigs[0].run(|encoder| {
                let step = half.record(encoder, &merged).unwrap();
                scaler.update(encoder, [step]).unwrap();
            });
        }
        let gradients = rigs.each_ref().map(|rig| rig.gradients()[0]);
        assert!(gradients.iter().all(|g| (g - 1.0 / 3f32.sqrt()).abs() < 1e-6), "{gradients:?}");
        assert_eq!(
            rigs[1].set.read_report().unwrap().total_norm,
            rigs[2].set.read_report().unwrap().total_norm
        );
    }
}
