//! A cap on skipped steps in a row: an error state, which only the caller ends.

use gradclip::{Context, Error, GradScaler, ScalerConfig, ScalerState};

use crate::rig::{Optimizer, bits, each, encoder, record, scaler, submit, take};
use crate::submission::PATIENCE;

/// One step with this gradient and its report.
fn step(gpu: &Context, scaler: &GradScaler, adamw: &Optimizer, gradient: f32) -> Result<u32, Error> {
    adamw.fill(&[gradient]);
    take(gpu, scaler, &[adamw], None)?;
    Ok(scaler.wait_report(PATIENCE)?.unwrap().scaler.consecutive_skipped)
}

fn capped(gpu: &Context, most: u32) -> (GradScaler, Optimizer) {
    let config = ScalerConfig { max_consecutive_skipped: Some(most), ..ScalerConfig::default() };
    (scaler(gpu, config).with_reports(4), Optimizer::new(gpu, "adamw", &[1.0]))
}

#[test]
fn too_many_skipped_steps_in_a_row_stop_training_until_it_is_resumed() {
    each(|gpu| {
        let (scaler, adamw) = capped(gpu, 3);
        let skipped = |gradient| step(gpu, &scaler, &adamw, gradient);
        // A finite step between them starts the count again.
        for (gradient, in_a_row) in [(f32::NAN, 1), (f32::NAN, 2), (1.0, 0), (f32::NAN, 1), (f32::NAN, 2)] {
            assert_eq!(skipped(gradient), Ok(in_a_row));
        }
        assert_eq!(skipped(f32::NAN), Ok(3));
        let refused = skipped(1.0).unwrap_err();
        assert_eq!(refused, Error::TooManySkipped { skipped: 3 });
        assert_eq!(
            refused.to_string(),
            "3 steps in a row were skipped; look in the reports for the tensors that stay infinite or NaN, or \
             overflow, then call GradScaler::resume to go on"
        );
        assert_eq!(skipped(1.0), Err(Error::TooManySkipped { skipped: 3 }), "it stays refused");
        scaler.resume().unwrap();
        assert_eq!(skipped(1.0), Ok(0));
        assert_eq!(skipped(1.0), Ok(0));
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.updates, state.skipped), (8, 5), "refused steps did not count");
    });
}

/// After `resume` as many may be skipped again; the scaler's own count, which reports show, goes on.
#[test]
fn resuming_starts_the_count_again() {
    each(|gpu| {
        let (scaler, adamw) = capped(gpu, 2);
        assert_eq!(step(gpu, &scaler, &adamw, f32::NAN), Ok(1));
        assert_eq!(step(gpu, &scaler, &adamw, f32::NAN), Ok(2));
        assert_eq!(step(gpu, &scaler, &adamw, 1.0), Err(Error::TooManySkipped { skipped: 2 }));
        scaler.resume().unwrap();
        assert_eq!(step(gpu, &scaler, &adamw, f32::NAN), Ok(3));
        assert_eq!(adamw.set.state().unwrap().consecutive_skipped, 1);
        assert_eq!(step(gpu, &scaler, &adamw, f32::NAN), Ok(4));
        assert!(matches!(step(gpu, &scaler, &adamw, 1.0), Err(Error::TooManySkipped { .. })));
    });
}

/// The cap is kept on the GPU, so that steps recorded before the host heard of it move nothing; without reports too.
#[test]
fn the_cap_holds_before_the_host_hears_of_it() {
    each(|gpu| {
        for reports in [0, 4] {
            let (scaler, adamw) = capped(gpu, 1);
            let scaler = scaler.with_reports(reports);
            adamw.fill(&[f32::NAN]);
            let (mut first, mut second) = (encoder(gpu), encoder(gpu));
            record(&mut first, &scaler, &[&adamw], None).unwrap();
            record(&mut second, &scaler, &[&adamw], None).unwrap();
            submit(gpu, first);
            adamw.fill(&[65536.0]);
            submit(gpu, second);
            gpu.device().poll(gradclip::wgpu::PollType::wait_indefinitely()).unwrap();
            assert_eq!(scaler.begin(&adamw.set).map(|_| ()), Err(Error::TooManySkipped { skipped: 1 }));
            assert_eq!((adamw.verdict().halted, adamw.verdict().skip), (1, 1));
            assert_eq!(adamw.bits(), bits(&[65536.0]));
            let state = scaler.state_dict().unwrap();
            assert_eq!((state.updates, state.skipped, state.stepped, state.scale), (1, 1, 0, 32768.0));
        }
    });
}

/// A loaded state is a fresh start.
#[test]
fn loading_a_state_ends_the_error_state() {
    each(|gpu| {
        let (scaler, adamw) = capped(gpu, 1);
        assert_eq!(step(gpu, &scaler, &adamw, f32::INFINITY), Ok(1));
        assert!(scaler.begin(&adamw.set).is_err());
        scaler.load_state_dict(&ScalerState::new(scaler.config())).unwrap();
        assert_eq!(step(gpu, &scaler, &adamw, 1.0), Ok(0));
    });
}
