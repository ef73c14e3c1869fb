//! Commands that never reach the GPU, and steps that nobody updates from.

use gradclip::{Context, Error, GradScaler, ScalerState};

use crate::rig::{Optimizer, after, bits, each, encoder, growing, only_set, record, scaler, submit, take};
use crate::submission::PATIENCE;

/// Records a step on an encoder that is dropped, and its update on one that is submitted.
fn update_from_a_step_that_never_runs(gpu: &Context, scaler: &GradScaler, optimizer: &Optimizer) {
    let (mut dropped, mut submitted) = (encoder(gpu), encoder(gpu));
    let step = scaler.begin(&optimizer.set).unwrap().unscale().record(&mut dropped).unwrap();
    scaler.update(&mut submitted, [step]).unwrap();
    drop(dropped);
    submit(gpu, submitted);
}

#[test]
fn a_dropped_encoder_takes_step_and_update_with_it() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[4.0]);
        let scaler = scaler(gpu, growing(4.0)).with_reports(4);
        let mut dropped = encoder(gpu);
        record(&mut dropped, &scaler, &[&adamw], None).unwrap();
        drop(dropped);
        let start = ScalerState::new(scaler.config());
        // The number of the update is used up; nothing else is.
        let start = ScalerState { next_update: 1, sets: only_set("adamw", &start), ..start };
        assert_eq!(scaler.state_dict().unwrap(), start);
        assert_eq!(adamw.bits(), bits(&[4.0]));

        take(gpu, &scaler, &[&adamw], None).unwrap();
        assert_eq!(adamw.bits(), bits(&[1.0]));
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.updates, state.missed), (8.0, 1, 0));

        // One error for the report that cannot come, then the next report.
        let lost = scaler.wait_report(PATIENCE).unwrap_err();
        assert_eq!(lost, Error::Dropped { update: 0 });
        assert_eq!(
            lost.to_string(),
            "the encoder of update 0 was dropped, so that update never ran and has no report"
        );
        let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
        assert_eq!((report.update, report.scaler.updates, report.steps[0].ran), (1, 1, true));
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
    });
}

/// The first step found inf, but the scale is moved by the second alone, whose update was recorded.
#[test]
fn a_step_submitted_without_an_update_does_not_count() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[f32::NAN]);
        let scaler = scaler(gpu, growing(4.0)).with_reports(1);
        let mut only_step = encoder(gpu);
        drop(scaler.begin(&adamw.set).unwrap().unscale().record(&mut only_step).unwrap());
        submit(gpu, only_step);
        assert_eq!(scaler.state_dict().unwrap().updates, 0);

        let state = after(gpu, &scaler, &adamw, 4.0);
        assert_eq!(
            (state.scale, state.updates, state.skipped, state.stepped, state.missed),
            (8.0, 1, 0, 1, 0)
        );
        assert_eq!(adamw.bits(), bits(&[1.0]));
        let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
        assert_eq!((report.steps[0].ran, report.steps[0].report.run), (true, 2));
    });
}

/// The verdict that the update finds is an old one, which must not move the scale a second time.
#[test]
fn an_update_from_a_step_that_never_ran_does_not_move_the_scale() {
    each(|gpu| {
        for (gradient, scale) in [(f32::INFINITY, 2.0), (4.0, 8.0)] {
            let adamw = Optimizer::new(gpu, "adamw", &[gradient]);
            let scaler = scaler(gpu, growing(4.0)).with_reports(4);
            let before = after(gpu, &scaler, &adamw, gradient);
            assert_eq!((before.scale, before.updates), (scale, 1));
            let gradients = adamw.bits();
            update_from_a_step_that_never_runs(gpu, &scaler, &adamw);
            assert_eq!(scaler.state_dict().unwrap(), ScalerState { missed: 1, next_update: 2, ..before });
            assert_eq!(adamw.bits(), gradients);

            let ran = [(); 2].map(|()| scaler.wait_report(PATIENCE).unwrap().unwrap());
            assert_eq!(ran.map(|r| r.steps[0].ran), [true, false]);

            // The next step counts again.
            let next = after(gpu, &scaler, &adamw, scale);
            assert_eq!((next.scale, next.updates, next.missed), (2.0 * scale, 2, 1));
            assert_eq!(adamw.bits(), bits(&[1.0]));
            assert!(scaler.wait_report(PATIENCE).unwrap().unwrap().steps[0].ran);
        }
    });
}

/// Before any step ran, a verdict says skip; an update from it is no skipped step, and a log line names no tensor.
#[test]
fn an_update_from_a_set_that_never_ran_moves_nothing() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[4.0]);
        let scaler = scaler(gpu, growing(4.0)).with_reports(1);
        update_from_a_step_that_never_runs(gpu, &scaler, &adamw);
        let start = ScalerState::new(scaler.config());
        assert_eq!(
            scaler.state_dict().unwrap(),
            ScalerState { missed: 1, next_update: 1, sets: only_set("adamw", &start), ..start }
        );
        let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
        assert!(!report.steps[0].ran);
        assert_eq!(report.steps[0].to_string(), "did not run on the GPU");
        assert_eq!(report.steps[0].report.total_norm, None);
        assert_eq!(report.steps[0].report.bad_tensors().count(), 0);
    });
}

/// Of two optimizers one ran: the update is made from that one.
#[test]
fn an_update_is_made_from_the_steps_that_ran() {
    each(|gpu| {
        let (ran, not) = (Optimizer::new(gpu, "ran", &[4.0]), Optimizer::new(gpu, "not", &[f32::NAN]));
        let scaler = scaler(gpu, growing(4.0)).with_reports(2);
        for (swap, scale) in [(false, 8.0), (true, 16.0)] {
            ran.fill(&[4.0]);
            let (mut dropped, mut submitted) = (encoder(gpu), encoder(gpu));
            let of_ran = scaler.begin(&ran.set).unwrap().unscale().record(&mut submitted).unwrap();
            let of_not = scaler.begin(&not.set).unwrap().unscale().record(&mut dropped).unwrap();
            let steps = if swap { [of_not, of_ran] } else { [of_ran, of_not] };
            scaler.update(&mut submitted, steps).unwrap();
            drop(dropped);
            submit(gpu, submitted);
            assert_eq!(scaler.state_dict().unwrap().scale, scale);
            let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
            for step in &report.steps {
                assert_eq!(step.ran, step.set == "ran", "{}", step.set);
            }
        }
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.updates, state.stepped, state.skipped, state.missed), (2, 2, 0, 2));
    });
}

/// Reports lost to a full ring must not make a later step that never ran look as if it had.
#[test]
fn a_step_that_never_ran_is_told_apart_after_lost_reports() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[4.0]);
        let scaler = scaler(gpu, growing(4.0)).with_reports(1);
        take(gpu, &scaler, &[&adamw], None).unwrap();
        take(gpu, &scaler, &[&adamw], None).unwrap();
        assert_eq!(scaler.lost_reports(), 1);
        assert!(scaler.wait_report(PATIENCE).unwrap().unwrap().steps[0].ran);
        update_from_a_step_that_never_runs(gpu, &scaler, &adamw);
        let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
        assert_eq!((report.scaler.updates, report.scaler.missed), (2, 1));
        assert!(!report.steps[0].ran);
    });
}

/// Nor must a set that has run before, under another scaler.
#[test]
fn a_step_that_never_ran_is_told_apart_under_a_new_scaler() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[4.0]);
        take(gpu, &scaler(gpu, growing(4.0)), &[&adamw], None).unwrap();
        let scaler = scaler(gpu, growing(4.0)).with_reports(1);
        update_from_a_step_that_never_runs(gpu, &scaler, &adamw);
        let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
        assert_eq!((report.scaler.updates, report.scaler.missed, report.steps[0].ran), (0, 1, false));
    });
}

/// An update that reached the GPU before its step finds nothing new; the step after it counts as usual.
#[test]
fn an_update_submitted_before_its_step_does_not_count() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[4.0]);
        let scaler = scaler(gpu, growing(4.0));
        let (mut step, mut update) = (encoder(gpu), encoder(gpu));
        let recorded = scaler.begin(&adamw.set).unwrap().unscale().record(&mut step).unwrap();
        scaler.update(&mut update, [recorded]).unwrap();
        submit(gpu, update);
        submit(gpu, step);
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.updates, state.missed), (4.0, 0, 1));
        assert_eq!(adamw.bits(), bits(&[1.0]));
        let state = after(gpu, &scaler, &adamw, 4.0);
        assert_eq!((state.scale, state.updates, state.missed), (8.0, 1, 1));
    });
}
