//! Limits from anywhere.

use gradclip::reference::{TensorBits, step};
use gradclip::{Error, Format, Limit, Unscale};

use crate::common::runner::upload;
use crate::support::{Rig, gpus};

fn reference(gradients: &[f32], unscale: Unscale, limit: Limit) -> Vec<f32> {
    let mut bytes = crate::common::f32s(gradients);
    let _ = step(&mut [TensorBits::new(Format::F32, &mut bytes)], unscale, limit);
    crate::support::floats(&bytes)
}

#[test]
fn p17_a_divisor_beside_the_scale() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0 * 10_240.0, 4.0 * 10_240.0]);
        let unscale = || Unscale::by(1024.0).divide_by(10.0);
        rig.run(|encoder| rig.set.record(encoder, unscale(), Limit::norm(1.0).eps(0.0)).unwrap());
        assert_eq!(rig.set.read_report().unwrap().total_norm, Some(5.0));
        // 1/10240 is no f32, so that 0.8 may be the next.
        let want = reference(&[3.0 * 10_240.0, 4.0 * 10_240.0], unscale(), Limit::norm(1.0).eps(0.0));
        assert_eq!(rig.gradients(), want, "{}", gpu.info.name);
        assert!(want.iter().zip([0.6, 0.8]).all(|(got, ideal)| (got - ideal).abs() < 1e-7), "{want:?}");
        // The product is exact and rounded once.
        let mut seed = 7u32;
        for _ in 0..200 {
            let mut number = || {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f32::from_bits((seed >> 9 | 0x3f80_0000) + ((seed & 15) << 23))
            };
            let (gradients, unscale) = ([number(), number()], Unscale::by(number()).divide_by(number()));
            rig.put(&gradients);
            rig.run(|encoder| rig.set.record(encoder, unscale.clone(), Limit::norm(0.25)).unwrap());
            assert_eq!(
                rig.gradients(),
                reference(&gradients, unscale.clone(), Limit::norm(0.25)),
                "{unscale:?}"
            );
        }
    }
}

#[test]
fn every_number_can_be_a_word_of_a_buffer() {
    for gpu in gpus() {
        let words = upload(&gpu.context, &crate::common::f32s(&[0.0, 8.0, 1.0, 0.0, 100.0, 2.0, 1.0]));
        let word = |i: u64| gpu.context.word(&words, i * 4).unwrap();
        let rig = Rig::new(&gpu.context, "adamw", &[48.0, 64.0]);
        let unscale = || Unscale::by(word(1)).divide_by(word(5));
        let limit = || Limit::norm(word(2)).eps(word(3)).skip_above(word(4));
        rig.run(|encoder| rig.set.record(encoder, unscale(), limit()).unwrap());
        assert_eq!(rig.gradients(), [0.6, 0.8], "{}", gpu.info.name);
        assert_eq!(rig.set.read_report().unwrap().total_norm, Some(5.0));

        // What they are is seen when the step runs, and a bad one skips.
        for (place, bad) in
            [(1, 0.0), (1, f32::NAN), (5, -1.0), (2, -1.0), (2, f32::NAN), (3, f32::INFINITY), (4, 0.0)]
        {
            let good = [0.0, 8.0, 1.0, 0.0, 100.0, 2.0, 1.0];
            let mut all = good;
            all[place] = bad;
            gpu.context.queue().write_buffer(&words, 0, &crate::common::f32s(&all));
            rig.put(&[48.0, 64.0]);
            rig.run(|encoder| rig.set.record(encoder, unscale(), limit()).unwrap());
            let report = rig.set.read_report().unwrap();
            assert!(report.skipped && report.bad_scalar && !report.found_inf, "{place} {bad}: {report}");
            assert_eq!((report.total_norm, report.factor), (None, None));
            assert_eq!(rig.gradients(), [48.0, 64.0]);
            gpu.context.queue().write_buffer(&words, 0, &crate::common::f32s(&good));
        }
        assert!(matches!(gpu.context.word(&words, 2), Err(Error::Word { .. })));
        assert!(matches!(gpu.context.word(&words, 28), Err(Error::Word { .. })));
        assert!(matches!(gpu.context.word(&words, u64::MAX - 3), Err(Error::Word { .. })));
    }
}

#[test]
fn a_norm_or_a_coefficient_from_elsewhere() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        // Pipeline stages: the norm of all of them is 10.
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::given_norm(10.0, 1.0).eps(0.0)).unwrap());
        let report = rig.set.read_report().unwrap();
        assert_eq!((report.total_norm, report.clipped), (Some(10.0), true));
        assert_eq!(rig.gradients(), [0.3, 0.4], "{}", gpu.info.name);
        rig.put(&[3.0, 4.0]);
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::coefficient(0.5)).unwrap());
        assert_eq!(rig.gradients(), [1.5, 2.0]);
        assert_eq!(rig.set.read_report().unwrap().total_norm, Some(5.0));
        // NaN is found all the same.
        rig.put(&[f32::NAN, 4.0]);
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::given_norm(10.0, 1.0)).unwrap());
        assert!(rig.set.read_report().unwrap().found_inf);
        // A coefficient can overflow.
        rig.put(&[3e38, 4.0]);
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::coefficient(2.0)).unwrap());
        assert!(rig.set.read_report().unwrap().overflow);
    }
}

/// p14: Muon and AdamW have norms of other sizes.
#[test]
fn p14_a_threshold_for_each_set() {
    for gpu in gpus() {
        let (muon, adamw) = (Rig::new(&gpu.context, "muon", &[5e7]), Rig::new(&gpu.context, "adamw", &[0.5]));
        let scaler = crate::support::scaler(&gpu.context, gradclip::ScalerConfig::disabled());
        let steps = [scaler.begin(&muon.set).unwrap(), scaler.begin(&adamw.set).unwrap()];
        muon.run(|encoder| {
            let recorded: Vec<_> = steps
                .into_iter()
                .zip([1e8, 0.25])
                .map(|(step, most)| {
                    step.unscale().limit(Limit::none().skip_above(most)).record(encoder).unwrap()
                })
                .collect();
            scaler.update(encoder, recorded).unwrap();
        });
        assert!(!muon.set.read_report().unwrap().skipped, "{}", gpu.info.name);
        assert!(adamw.set.read_report().unwrap().above);
    }
}

/// Thousands of values, two in one encoder, encoders submitted in the other order: each step sees its own.
#[test]
fn numbers_stay_with_their_step() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        let mut encoders = Vec::new();
        for i in 0..600u32 {
            let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
            let limit = Limit::coefficient(if i % 2 == 0 { 2.0 } else { 0.5 });
            rig.set.record(&mut encoder, 1.0, limit).unwrap();
            rig.set.record(&mut encoder, 1.0, Limit::coefficient(1.0 + (i % 7) as f32)).unwrap();
            rig.set.record(&mut encoder, 1.0 + (i % 7) as f32, Limit::none()).unwrap();
            // Some are dropped.
            if i % 50 != 49 && i % 50 != 48 {
                encoders.push(encoder.finish());
            }
        }
        encoders.reverse();
        gpu.context.queue().submit(encoders);
        let close = rig.gradients().iter().zip([3.0, 4.0]).all(|(got, want)| (got - want).abs() < 1e-3);
        assert!(close, "{}: {:?}", gpu.info.name, rig.gradients());
    }
}
