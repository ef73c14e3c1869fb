//! The wrong order, the wrong ledger, the wrong limit; and what is not finite in one part.

use gradclip::{
    ClipNorm, Error, Format, GradScaler, GradSet, Ledger, LossScale, Nonfinite, NormType, ScalerConfig,
    TensorSlice, reference,
};

use crate::common::{f32s, gpus};
use crate::parts::{Part, Tensors, merge};

fn tensors(values: &[f32]) -> Tensors {
    vec![(Format::F32, f32s(values))]
}

fn limit() -> Option<ClipNorm> {
    Some(ClipNorm::new(1.0).unwrap())
}

fn scale() -> LossScale {
    LossScale::new(8.0).unwrap()
}

/// The ledger of gradients that lie elsewhere.
fn elsewhere(values: &[f32]) -> Ledger {
    let mut bytes = f32s(values);
    let tensors = [reference::TensorBits::new(Format::F32, &mut bytes)];
    reference::ledger(&tensors, scale(), limit()).unwrap()
}

#[track_caller]
fn no_ledger<T: std::fmt::Debug>(got: Result<T, Error>) {
    assert!(matches!(got, Err(Error::NoLedger { ref set }) if set == "part"), "{got:?}");
}

#[test]
fn the_halves_come_in_order_and_once() {
    for gpu in gpus() {
        let before = tensors(&[24.0, -32.0]);
        let part = Part::new(&gpu.context, &before);
        let merged = elsewhere(&[24.0, -32.0]);
        let finish = |part: &Part| part.submit(|encoder| part.set.record_merged(encoder, &merged));
        no_ledger(part.set.read_ledger());
        no_ledger(finish(&part));

        // Recorded but not submitted, then dropped.
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        part.set.record_ledger(&mut encoder, scale(), limit()).unwrap();
        drop(encoder);
        assert!(matches!(part.set.read_ledger(), Err(Error::NotRun { .. })));
        no_ledger(finish(&part));

        // Another step in between changes the gradients.
        part.measure(scale(), limit()).unwrap();
        part.submit(|encoder| part.set.record(encoder, LossScale::ONE, None)).unwrap();
        no_ledger(finish(&part));
        no_ledger(part.set.read_ledger());

        // A rebind moves them.
        part.measure(scale(), limit()).unwrap();
        let other = crate::common::runner::upload(&gpu.context, &before[0].1);
        let slice = TensorSlice { buffer: &other, offset: 0, len: 2, format: Format::F32 };
        part.set.rebind(&[slice]).unwrap();
        no_ledger(finish(&part));
        assert_eq!(part.bytes(), [before[0].1.clone()]);

        let part = Part::new(&gpu.context, &before);
        assert_eq!(part.measure(scale(), limit()).unwrap(), merged);
        // Reading again is fine; so is measuring again.
        assert_eq!(part.set.read_ledger().unwrap(), merged);
        assert_eq!(part.measure(scale(), limit()).unwrap(), merged);
        finish(&part).unwrap();
        assert_eq!(part.set.read_report().unwrap().total_norm, Some(5.0));
        let after = part.bytes();
        assert_ne!(after, [before[0].1.clone()]);
        no_ledger(finish(&part));
        assert_eq!(part.bytes(), after);
    }
}

/// As an engine does whose gradients lie elsewhere in every step.
#[test]
fn a_set_is_measured_wherever_it_lies() {
    for gpu in gpus() {
        let part = Part::new(&gpu.context, &tensors(&[24.0, -32.0]));
        for offset in [0, 4, 4, 8, 12u64] {
            let mut bytes = vec![0; offset as usize];
            bytes.extend(f32s(&[24.0, -32.0]));
            let buffer = crate::common::runner::upload(&gpu.context, &bytes);
            let slice = TensorSlice { buffer: &buffer, offset, len: 2, format: Format::F32 };
            part.set.rebind(&[slice]).unwrap();
            no_ledger(part.set.read_ledger());
            let merged = part.measure(scale(), limit()).unwrap();
            assert_eq!(merged, elsewhere(&[24.0, -32.0]), "at {offset}");
            assert_eq!(part.finish(&merged).unwrap().total_norm, Some(5.0));
        }
    }
}

/// What ran and was not read is not the ledger of what did not run.
#[test]
fn a_ledger_of_an_earlier_half_is_not_handed_out() {
    let clip = |norm_type| limit().map(|clip| clip.with_norm_type(norm_type));
    for gpu in gpus() {
        let part = Part::new(&gpu.context, &tensors(&[24.0, -32.0]));
        part.submit(|encoder| part.set.record_ledger(encoder, scale(), clip(NormType::L2))).unwrap();
        part.replace(0, &f32s(&[240.0, -320.0]));
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        part.set.record_ledger(&mut encoder, scale(), clip(NormType::L1)).unwrap();
        let read = part.set.read_ledger();
        assert!(matches!(read, Err(Error::NotRun { .. })), "{read:?}");
        no_ledger(part.submit(|e| part.set.record_merged(e, &elsewhere(&[24.0, -32.0]))));
        gpu.context.queue().submit([encoder.finish()]);
        let ledger = part.set.read_ledger().unwrap();
        assert_eq!((ledger.norm_type(), ledger.total_norm().unwrap().to_f64()), (NormType::L1, 70.0));

        // Planned anew, and dropped.
        let part = Part::new(&gpu.context, &tensors(&[24.0, -32.0]));
        part.measure(scale(), limit()).unwrap();
        let bytes = f32s(&[0.0, 24.0, -32.0]);
        let buffer = crate::common::runner::upload(&gpu.context, &bytes);
        let slice = TensorSlice { buffer: &buffer, offset: 4, len: 2, format: Format::F32 };
        part.set.rebind(&[slice]).unwrap();
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        part.set.record_ledger(&mut encoder, scale(), limit()).unwrap();
        drop(encoder);
        let read = part.set.read_ledger();
        assert!(matches!(read, Err(Error::NotRun { .. })), "{read:?}");
    }
}

#[test]
fn a_ledger_without_the_set_s_own_is_refused() {
    for gpu in gpus() {
        let before = tensors(&[24.0, -32.0]);
        let part = Part::new(&gpu.context, &before);
        let own = part.measure(scale(), limit()).unwrap();
        let wrong = [
            // Another part's, a smaller one, an empty one, one of an earlier step.
            elsewhere(&[24.0, 31.0]),
            elsewhere(&[1e-30]),
            elsewhere(&[]),
            merge(&[elsewhere(&[1.0]), elsewhere(&[2.0])]),
            // As many parts as its own, and not its own.
            elsewhere(&[240.0, -320.0]),
            elsewhere(&[240.0, f32::NAN, 1.0]),
            // More than the others' elements can add to its own.
            merge(&[elsewhere(&[1e18]), elsewhere(&[1.0])]),
        ];
        for merged in wrong {
            let got = part.submit(|encoder| part.set.record_merged(encoder, &merged));
            let said = matches!(&got, Err(Error::Ledger { what }) if what.contains("does not contain"));
            assert!(said, "{got:?}");
        }
        let other_scale = reference::ledger(&[], LossScale::ONE, limit()).unwrap();
        let got = part.submit(|encoder| part.set.record_merged(encoder, &other_scale));
        assert!(
            matches!(&got, Err(Error::Ledger { what }) if what.contains("another loss scale")),
            "{got:?}"
        );
        // All words of it add up, and one part had another limit.
        let mut sum = own.to_words();
        let looser = reference::ledger(&[], scale(), Some(ClipNorm::new(2.0).unwrap())).unwrap();
        sum.iter_mut().zip(looser.to_words()).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        let merged = Ledger::from_words(&sum).unwrap();
        let got = part.submit(|encoder| part.set.record_merged(encoder, &merged));
        assert!(matches!(&got, Err(Error::Ledger { what }) if what.contains("another limit")), "{got:?}");
        assert_eq!(part.bytes(), [before[0].1.clone()]);

        // The right one still goes in: 3, 4 and 12 elsewhere.
        let merged = merge(&[elsewhere(&[96.0]), own]);
        assert_eq!(part.finish(&merged).unwrap().total_norm, Some(13.0));
    }
}

#[test]
fn limits_that_no_part_can_judge_alone_are_refused() {
    let clip = |max_norm| Some(ClipNorm::new(max_norm).unwrap());
    for gpu in gpus() {
        let f32 = Part::new(&gpu.context, &tensors(&[1.0, 2.0]));
        let f16 = Part::new(&gpu.context, &vec![(Format::F16, vec![0, 0x3c]), (Format::F32, f32s(&[1.0]))]);
        let top = 2f32.powi(127);
        for (part, fine, not) in [(&f32, 1e38, top), (&f16, 65503.9, 65504.0)] {
            part.measure(scale(), clip(fine)).unwrap();
            part.measure(scale(), clip(f32::INFINITY)).unwrap();
            let why = part.measure(scale(), clip(not)).unwrap_err().to_string();
            assert!(why.contains("set \"part\": max_norm"), "{why}");
        }
        let linf = clip(1.0).map(|c| c.with_norm_type(NormType::Linf));
        let why = f32.measure(scale(), linf).unwrap_err();
        assert!(matches!(&why, Error::ShardLimit { why, .. } if why.contains("no sum")), "{why}");
    }
    let mut bytes = f32s(&[1.0]);
    let mut twin = [reference::TensorBits::new(Format::F32, &mut bytes)];
    let merged = elsewhere(&[1.0]);
    let got = reference::step_merged(&mut twin, &merged, clip(2f32.powi(127)));
    assert!(matches!(got, Err(Error::ShardLimit { .. })), "{got:?}");
    let got = reference::step_merged(&mut twin, &merged, clip(1.0).map(|c| c.with_norm_type(NormType::L1)));
    assert!(matches!(got, Err(Error::Ledger { .. })), "{got:?}");
}

#[test]
fn what_is_not_finite_in_one_part_skips_the_step_on_all() {
    let fine = tensors(&[1.0, 2.0]);
    let bad = tensors(&[1.0, f32::NEG_INFINITY, f32::NAN]);
    for gpu in gpus() {
        let parts = [Part::new(&gpu.context, &fine), Part::new(&gpu.context, &bad)];
        let ledgers: Vec<Ledger> = parts.iter().map(|p| p.measure(scale(), limit()).unwrap()).collect();
        let merged = merge(&ledgers);
        assert_eq!(merged.nonfinite(), [1, 0, 1]);
        for (part, before, found) in [
            (&parts[0], &fine, Nonfinite::default()),
            (&parts[1], &bad, Nonfinite { nan: 1, neg_inf: 1, first: Some(1), ..Nonfinite::default() }),
        ] {
            let report = part.finish(&merged).unwrap();
            assert!(report.found_inf && report.skipped && !report.overflow);
            assert_eq!(crate::common::found(&report), crate::common::bad(&[found]));
            assert_eq!(part.bytes(), [before[0].1.clone()]);
            assert_eq!(part.set.read_verdict().unwrap().skip, 1);
        }
    }
}

/// A report's counts are of this step, not of one before.
#[test]
fn counts_of_an_earlier_step_are_gone() {
    for gpu in gpus() {
        let part = Part::new(&gpu.context, &tensors(&[f32::NAN, 2.0]));
        let merged = part.measure(scale(), limit()).unwrap();
        assert_eq!(part.finish(&merged).unwrap().nonfinite[0].nonfinite.nan, 1);
        part.replace(0, &f32s(&[1.0, 2.0]));
        let merged = merge(&[part.measure(scale(), limit()).unwrap(), elsewhere(&[f32::NAN])]);
        let report = part.finish(&merged).unwrap();
        assert!(report.found_inf);
        assert_eq!(report.nonfinite, []);
    }
}

#[test]
fn an_open_step_is_not_measured_beside() {
    for gpu in gpus() {
        let part = Part::new(&gpu.context, &tensors(&[1.0]));
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::default()).unwrap();
        let step = scaler.begin(&part.set).unwrap();
        assert!(matches!(part.measure(scale(), None), Err(Error::StepOpen { .. })));
        drop(step);
        part.measure(scale(), None).unwrap();
    }
}

#[test]
fn async_reading_works_too() {
    for gpu in gpus() {
        let part = Part::new(&gpu.context, &tensors(&[24.0, -32.0]));
        part.submit(|encoder| part.set.record_ledger(encoder, scale(), limit())).unwrap();
        let read = part.set.read_ledger_async();
        gpu.context.device().poll(gradclip::wgpu::PollType::wait_indefinitely()).unwrap();
        assert_eq!(pollster::block_on(read).unwrap(), elsewhere(&[24.0, -32.0]));
    }
}

#[test]
fn the_deferred_half_writes_nothing() {
    for gpu in gpus() {
        let before = tensors(&[24.0, -32.0]);
        let part = Part::new(&gpu.context, &before);
        part.submit(|encoder| part.set.record_ledger_deferred(encoder, scale(), limit())).unwrap();
        let merged = part.set.read_ledger().unwrap();
        let report = part.finish(&merged).unwrap();
        assert!(report.clipped);
        assert_eq!(part.bytes(), [before[0].1.clone()]);
    }
}

/// A set without tensors has nothing to say, and agrees.
#[test]
fn a_set_of_nothing() {
    for gpu in gpus() {
        let set = GradSet::builder("part").build(&gpu.context).unwrap();
        set.prepare([gradclip::Prepare::Ledger]).unwrap();
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        set.record_ledger(&mut encoder, scale(), limit()).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        assert_eq!(set.read_ledger().unwrap(), reference::ledger(&[], scale(), limit()).unwrap());
    }
}
