//! In order, each once, none lost silently, and never at the price of a hang.

use gradclip::Error;

use crate::common::gpus;
use crate::rig::{Optimizer, PATIENCE, encoder, next, record, steady, submit, update};

#[test]
fn reports_come_in_order_and_once() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 4), Optimizer::of_one(gpu, "adamw"));
        let mut seen = Vec::new();
        for i in 0..20u8 {
            optimizer.put(gpu, 8.0 * f32::from(i));
            submit(gpu, update(gpu, &scaler, &optimizer));
            // Three on their way at most, so none is lost.
            if i >= 3 {
                seen.push(next(&scaler));
            }
        }
        while let Some(report) = scaler.wait_report(PATIENCE).unwrap() {
            seen.push(report);
        }
        assert_eq!(scaler.poll_report(), Ok(None));
        let numbers: Vec<(u64, Option<f64>, u32)> =
            seen.iter().map(|r| (r.update, r.steps[0].report.total_norm, r.scaler.updates)).collect();
        let expected: Vec<(u64, Option<f64>, u32)> =
            (0..20).map(|i| (i.into(), Some(i.into()), i + 1)).collect();
        assert_eq!(numbers, expected);
        assert_eq!((scaler.lost_reports(), seen[19].lost), (0, 0));
        assert_eq!(scaler.latest_report().as_ref(), seen.last());
    }
}

/// An encoder that records two updates, submitted after one that was recorded later.
#[test]
fn the_order_is_that_of_recording() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 3), Optimizer::of_one(gpu, "adamw"));
        let mut first = update(gpu, &scaler, &optimizer);
        let step = record(&scaler, &optimizer, &mut first);
        scaler.update(&mut first, [step]).unwrap();
        let second = update(gpu, &scaler, &optimizer);
        submit(gpu, second);
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None), "the first two are not submitted");
        submit(gpu, first);
        // What they say is from when they ran.
        let runs: Vec<(u64, u32)> =
            (0..3).map(|_| next(&scaler)).map(|r| (r.update, r.scaler.updates)).collect();
        assert_eq!(runs, [(0, 2), (1, 3), (2, 1)]);
    }
}

#[test]
fn a_full_ring_loses_reports_and_says_so() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 2), Optimizer::of_one(gpu, "adamw"));
        for _ in 0..5 {
            submit(gpu, update(gpu, &scaler, &optimizer));
        }
        assert_eq!(scaler.lost_reports(), 3);
        let kept = [next(&scaler), next(&scaler)].map(|r| (r.update, r.lost));
        assert_eq!(kept, [(0, 3), (1, 3)]);
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
        // The steps themselves ran, and the next report has the gap in its number.
        submit(gpu, update(gpu, &scaler, &optimizer));
        let report = next(&scaler);
        assert_eq!((report.update, report.lost, report.scaler.updates), (5, 3, 6));
        assert!(report.steps[0].ran);
    }
}

#[test]
fn without_a_ring_there_are_no_reports() {
    let gpu = &gpus()[0].context;
    let (scaler, optimizer) = (steady(gpu, 0), Optimizer::of_one(gpu, "adamw"));
    submit(gpu, update(gpu, &scaler, &optimizer));
    assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
    assert_eq!((scaler.lost_reports(), scaler.latest_report()), (0, None));
    // One that is asked for later starts with the next update.
    let scaler = scaler.with_reports(1);
    submit(gpu, update(gpu, &scaler, &optimizer));
    assert_eq!(next(&scaler).scaler.updates, 2);
}

#[test]
fn polling_before_the_submission_disturbs_nothing() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 2), Optimizer::of_one(gpu, "adamw"));
        assert_eq!(scaler.poll_report(), Ok(None), "nothing recorded");
        optimizer.put(gpu, 24.0);
        let mut encoder = encoder(gpu);
        let step = record(&scaler, &optimizer, &mut encoder);
        assert_eq!(scaler.poll_report(), Ok(None), "not updated");
        scaler.update(&mut encoder, [step]).unwrap();
        assert_eq!(scaler.poll_report(), Ok(None), "not finished");
        let commands = encoder.finish();
        assert_eq!(scaler.poll_report(), Ok(None), "not submitted");
        assert_eq!(scaler.latest_report(), None);
        gpu.queue().submit([commands]);
        let report = next(&scaler);
        assert_eq!((report.update, report.steps[0].report.total_norm), (0, Some(3.0)));
        assert_eq!(scaler.poll_report(), Ok(None), "read already");
        assert_eq!(scaler.latest_report(), Some(report));
    }
}

#[test]
fn waiting_for_what_cannot_come_returns() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 2), Optimizer::of_one(gpu, "adamw"));
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None), "nothing pending");
        let encoder = update(gpu, &scaler, &optimizer);
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None), "not submitted");
        submit(gpu, encoder);
        assert_eq!(next(&scaler).update, 0);
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None), "read already");
    }
}

#[test]
fn a_dropped_encoder_is_told_once_and_later_reports_follow() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 3), Optimizer::of_one(gpu, "adamw"));
        drop(update(gpu, &scaler, &optimizer));
        drop(update(gpu, &scaler, &optimizer).finish());
        submit(gpu, update(gpu, &scaler, &optimizer));
        assert_eq!(scaler.lost_reports(), 0);
        assert_eq!(scaler.wait_report(PATIENCE), Err(Error::Dropped { update: 0 }));
        assert_eq!(scaler.poll_report(), Err(Error::Dropped { update: 1 }));
        let report = next(&scaler);
        assert_eq!((report.update, report.scaler.updates, report.lost), (2, 1, 0));
        assert!(report.steps[0].ran);
        // The staging buffers of the dropped ones serve again.
        for update_number in 3..9 {
            submit(gpu, update(gpu, &scaler, &optimizer));
            assert_eq!(next(&scaler).update, update_number);
        }
    }
}

/// The message has to reach a person who reads a log.
#[test]
fn a_dropped_encoder_has_a_clear_message() {
    assert_eq!(
        Error::Dropped { update: 7 }.to_string(),
        "the encoder of update 7 was dropped, so that update never ran and has no report"
    );
}

/// Reports of sets of different sizes share the ring.
#[test]
fn staging_buffers_of_other_sizes_are_replaced() {
    let gpu = &gpus()[0].context;
    let scaler = steady(gpu, 3);
    let small = Optimizer::of_one(gpu, "small");
    let names: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let tensors: Vec<_> = names.iter().map(|name| crate::rig::f32s(name, &[f32::NAN])).collect();
    let large = Optimizer::new(gpu, "large", &tensors, None);
    for i in 0..8u64 {
        let optimizer = if i % 3 == 0 { &large } else { &small };
        submit(gpu, update(gpu, &scaler, optimizer));
        let report = next(&scaler);
        assert_eq!((report.update, report.steps[0].set.as_str()), (i, optimizer.set.name()));
        assert_eq!(report.steps[0].report.nonfinite.len(), if i % 3 == 0 { 9 } else { 0 });
    }
}
