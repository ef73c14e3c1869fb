//! A step whose commands never ran is told apart from one with norm 0.

use gradclip::{GradScaler, TensorNorm};

use crate::common::gpus;
use crate::rig::{Optimizer, encoder, next, record, steady, submit, update};

/// An update on an encoder of its own, after a step whose encoder was dropped.
fn update_without_step(gpu: &gradclip::Context, scaler: &GradScaler, optimizer: &Optimizer) {
    let mut dropped = encoder(gpu);
    let step = record(scaler, optimizer, &mut dropped);
    drop(dropped);
    let mut submitted = encoder(gpu);
    scaler.update(&mut submitted, [step]).unwrap();
    submit(gpu, submitted);
}

#[test]
fn norm_0_is_a_step_that_ran() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 1), Optimizer::of_one(gpu, "adamw"));
        submit(gpu, update(gpu, &scaler, &optimizer));
        let report = next(&scaler);
        let step = &report.steps[0];
        assert!(step.ran && !step.report.skipped);
        assert_eq!((step.report.total_norm, step.report.run), (Some(0.0), 1));
        assert_eq!((report.scaler.updates, report.scaler.missed), (1, 0));
    }
}

#[test]
fn a_step_that_never_ran_says_so() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 1), Optimizer::of_one(gpu, "adamw"));
        optimizer.put(gpu, 24.0);
        // The first ever, one after a step that ran, and one more.
        update_without_step(gpu, &scaler, &optimizer);
        let report = next(&scaler);
        assert!(!report.steps[0].ran && report.steps[0].report.skipped);
        assert_eq!((report.scaler.updates, report.scaler.missed), (0, 1));

        submit(gpu, update(gpu, &scaler, &optimizer));
        assert!(next(&scaler).steps[0].ran);

        for missed in 2..4 {
            update_without_step(gpu, &scaler, &optimizer);
            let report = next(&scaler);
            assert!(!report.steps[0].ran, "{report:?}");
            assert_eq!((report.scaler.updates, report.scaler.missed), (1, missed));
        }

        submit(gpu, update(gpu, &scaler, &optimizer));
        let report = next(&scaler);
        assert!(report.steps[0].ran);
        assert_eq!((report.steps[0].report.run, report.scaler.updates), (2, 2));
    }
}

/// The run that the lost report would have shown is not this step's.
#[test]
fn a_step_that_never_ran_after_a_lost_report_says_so() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 1), Optimizer::of_one(gpu, "adamw"));
        optimizer.put(gpu, 24.0);
        submit(gpu, update(gpu, &scaler, &optimizer));
        submit(gpu, update(gpu, &scaler, &optimizer));
        assert_eq!(scaler.lost_reports(), 1);
        assert!(next(&scaler).steps[0].ran);
        update_without_step(gpu, &scaler, &optimizer);
        let report = next(&scaler);
        assert_eq!((report.update, report.lost, report.scaler.missed), (2, 1, 1));
        assert!(!report.steps[0].ran, "{report:?}");
    }
}

/// Neither is one that ran before reports were asked for.
#[test]
fn a_step_that_never_ran_before_the_first_report_says_so() {
    let gpu = &gpus()[0].context;
    let (scaler, optimizer) = (steady(gpu, 0), Optimizer::of_one(gpu, "adamw"));
    submit(gpu, update(gpu, &scaler, &optimizer));
    let scaler = scaler.with_reports(1);
    update_without_step(gpu, &scaler, &optimizer);
    let report = next(&scaler);
    assert_eq!(report.scaler.missed, 1);
    assert!(!report.steps[0].ran, "{report:?}");
}

/// Numbers of an earlier step are no measure of this one.
#[test]
fn a_step_that_never_ran_has_no_measured_norms() {
    let gpu = &gpus()[0].context;
    let (scaler, optimizer) = (steady(gpu, 1), Optimizer::of_one(gpu, "adamw"));
    optimizer.put(gpu, 24.0);
    for runs in [false, true, false] {
        let mut first = encoder(gpu);
        let open = scaler.begin(&optimizer.set).unwrap().unscale();
        let step = open.measure_norm_after().measure_tensor_norms().record(&mut first).unwrap();
        if runs {
            submit(gpu, first);
        } else {
            drop(first);
        }
        let mut second = encoder(gpu);
        scaler.update(&mut second, [step]).unwrap();
        submit(gpu, second);
        let report = next(&scaler);
        let step = &report.steps[0];
        assert_eq!(step.ran, runs);
        assert_eq!(step.norm_after, runs.then_some(3.0));
        assert_eq!(
            step.tensor_norms,
            runs.then(|| vec![TensorNorm { name: "gradient".into(), norm: Some(3.0) }])
        );
    }
}

/// Two optimizers, one of which never ran: its sibling's step counts.
#[test]
fn one_of_two_steps_never_ran() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let scaler = steady(gpu, 1);
        let (decay, no_decay) = (Optimizer::of_one(gpu, "decay"), Optimizer::of_one(gpu, "no decay"));
        let mut dropped = encoder(gpu);
        let missed = record(&scaler, &decay, &mut dropped);
        drop(dropped);
        let mut submitted = encoder(gpu);
        let ran = record(&scaler, &no_decay, &mut submitted);
        scaler.update(&mut submitted, [missed, ran]).unwrap();
        submit(gpu, submitted);
        let report = next(&scaler);
        let said: Vec<(&str, bool)> = report.steps.iter().map(|s| (s.set.as_str(), s.ran)).collect();
        assert_eq!(said, [("decay", false), ("no decay", true)]);
        assert_eq!((report.scaler.updates, report.scaler.missed, report.scaler.stepped), (1, 1, 1));
    }
}
