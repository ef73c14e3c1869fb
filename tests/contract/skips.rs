//! Skips that cannot be missed.

use gradclip::{Error, Limit, ScalerConfig, SkipRule};

use crate::support::{Rig, gpus, scaler, settle};

fn capped(cap: u32) -> ScalerConfig {
    ScalerConfig {
        max_consecutive_skipped: Some(cap),
        init_scale: 1024.0,
        growth_interval: 4,
        ..ScalerConfig::default()
    }
}

#[test]
fn p06_nan_in_every_step_stops_without_reports() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[f32::NAN]);
        let scaler = scaler(&gpu.context, capped(3));
        for _ in 0..3 {
            rig.step(&scaler).unwrap();
            settle(&gpu.context);
        }
        assert!(matches!(rig.step(&scaler), Err(Error::TooManySkipped { skipped: 3 })), "{}", gpu.info.name);
    }
}

#[test]
fn p05_steps_above_the_threshold_stop_too_and_leave_the_scale() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[1.0]);
        let scaler = scaler(&gpu.context, ScalerConfig { skip_above: Some(400.0), ..capped(3) });
        for norm in [450.0, 420.0, 450.0] {
            rig.put(&[norm * 1024.0]);
            rig.step(&scaler).unwrap();
            settle(&gpu.context);
        }
        assert!(matches!(rig.step(&scaler), Err(Error::TooManySkipped { skipped: 3 })), "{}", gpu.info.name);
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.growth_tracker, state.stepped, state.above), (1024.0, 0, 0, 3));
        assert_eq!((state.skipped, state.consecutive_skipped), (3, 3));
        assert_eq!(state.sets[0].steps, 0);
    }
}

/// The host may hear late; the GPU does not.
#[test]
fn from_the_cap_on_nothing_moves_on_the_gpu() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[f32::INFINITY]);
        let scaler = scaler(&gpu.context, capped(2));
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        for _ in 0..5 {
            let step = scaler.begin(&rig.set).unwrap().unscale().record(&mut encoder).unwrap();
            scaler.update(&mut encoder, [step]).unwrap();
        }
        gpu.context.queue().submit([encoder.finish()]);
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.updates, state.skipped, state.scale), (2, 2, 256.0), "{}", gpu.info.name);
        let verdict = rig.set.read_verdict().unwrap();
        assert_eq!((verdict.skip, verdict.halted), (1, 1));
        // Also where the gradients are finite by now.
        rig.put(&[1.0]);
        rig.run(|encoder| {
            let ticket = rig.set.measure(encoder, 1.0, gradclip::Measure::norm()).unwrap();
            drop(ticket);
        });
        assert!(matches!(scaler.begin(&rig.set), Err(Error::TooManySkipped { .. })));

        scaler.resume().unwrap();
        rig.put(&[1.0]);
        rig.step(&scaler).unwrap();
        let verdict = rig.set.read_verdict().unwrap();
        assert_eq!((verdict.skip, verdict.halted, verdict.taken), (0, 0, 1), "{}", gpu.info.name);
        settle(&gpu.context);
        assert!(scaler.begin(&rig.set).is_ok());
    }
}

#[test]
fn a_loaded_state_is_armed() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[f32::NAN]);
        let first = scaler(&gpu.context, capped(2));
        rig.step(&first).unwrap();
        let saved = first.state_dict().unwrap();
        let new = Rig::new(&gpu.context, "adamw", &[f32::NAN]);
        let second = scaler(&gpu.context, capped(2));
        second.load_state_dict(&saved).unwrap();
        new.step(&second).unwrap();
        settle(&gpu.context);
        assert!(matches!(new.step(&second), Err(Error::TooManySkipped { .. })), "{}", gpu.info.name);
        // And one that had reached the cap does not begin at all.
        let third = scaler(&gpu.context, capped(2));
        third.load_state_dict(&second.state_dict().unwrap()).unwrap();
        assert!(matches!(new.step(&third), Err(Error::TooManySkipped { .. })));
    }
}

#[test]
fn each_or_all() {
    for gpu in gpus() {
        for (rule, head) in [(SkipRule::Each, 5), (SkipRule::All, 0)] {
            let trunk = Rig::new(&gpu.context, "trunk", &[f32::NAN]);
            let other = Rig::new(&gpu.context, "head", &[8.0]);
            let config = ScalerConfig { skip: rule, init_scale: 8.0, ..ScalerConfig::default() };
            let scaler = scaler(&gpu.context, config);
            for _ in 0..5 {
                other.put(&[8.0]);
                let steps = [scaler.begin(&trunk.set).unwrap(), scaler.begin(&other.set).unwrap()];
                other.run(|encoder| {
                    let steps = steps.map(|step| step.unscale().limit(Limit::norm(1.0)));
                    let steps = scaler.record_all(encoder, steps).unwrap();
                    scaler.update(encoder, steps).unwrap();
                });
            }
            let verdict = other.set.read_verdict().unwrap();
            assert_eq!(verdict.taken, head, "{rule:?} on {}", gpu.info.name);
            assert_eq!((verdict.skip, verdict.other), if head == 0 { (1, 1) } else { (0, 0) });
            assert_eq!(other.gradients()[0] == 8.0, head == 0);
            let state = scaler.state_dict().unwrap();
            assert_eq!((state.skipped, state.stepped), (5, head));
            // Deferred, too.
            other.put(&[8.0]);
            let steps = [scaler.begin(&trunk.set).unwrap(), scaler.begin(&other.set).unwrap()];
            other.run(|encoder| {
                let steps = steps.map(|step| step.unscale().limit(Limit::norm(0.5)));
                let steps = scaler.record_all_deferred(encoder, steps).unwrap();
                scaler.update(encoder, steps).unwrap();
            });
            let verdict = other.set.read_verdict().unwrap();
            assert_eq!((verdict.skip, verdict.apply), if head == 0 { (1, 0) } else { (0, 1) });
            assert_eq!(other.gradients(), [8.0]);
        }
    }
}

#[test]
fn all_or_none_wants_to_hear_all() {
    for gpu in gpus() {
        let rigs = ["a", "b"].map(|name| Rig::new(&gpu.context, name, &[1.0]));
        let config = ScalerConfig { skip: SkipRule::All, ..ScalerConfig::default() };
        let scaler = scaler(&gpu.context, config);
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        let [a, b] = rigs.each_ref().map(|rig| scaler.begin(&rig.set).unwrap().unscale());
        assert!(matches!(a.record(&mut encoder), Err(Error::Together { .. })));
        // The other is alone now.
        let step = b.record(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
    }
}
