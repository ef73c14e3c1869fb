//! The count of steps belongs to the optimizer, and survives.

use gradclip::{Error, GradScaler, ScalerConfig, ScalerState, SetState, TorchState, UpdateReport};

use crate::support::{Rig, gpus, scaler, slice};

/// In a new process there are new sets and a new scaler.
fn restored(rig: &Rig, config: ScalerConfig, state: &ScalerState) -> (Rig, GradScaler) {
    let json = serde_json::to_string(state).unwrap();
    let state: ScalerState = serde_json::from_str(&json).unwrap();
    let new = Rig::new(&rig.gpu, rig.set.name(), &[1.0]);
    let scaler = scaler(&rig.gpu, config);
    scaler.load_state_dict(&state).unwrap();
    (new, scaler)
}

#[test]
fn p07_adams_t_goes_on_after_a_resume() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[1.0]);
        let config = ScalerConfig::default();
        let first = scaler(&gpu.context, config);
        for gradient in [1.0, 1.0, 1.0, f32::INFINITY, 1.0, 1.0] {
            rig.put(&[gradient]);
            rig.step(&first).unwrap();
        }
        assert_eq!(rig.set.read_verdict().unwrap().taken, 5, "{}", gpu.info.name);
        let saved = first.state_dict().unwrap();
        assert_eq!(saved.sets, [SetState::new("adamw", 5)]);
        assert_eq!(saved, pollster_state(&first));

        let (rig, second) = restored(&rig, config, &saved);
        // Nothing ran yet, and nothing is lost by saving again.
        assert_eq!(second.state_dict().unwrap(), saved);
        rig.step(&second).unwrap();
        assert_eq!(rig.set.read_verdict().unwrap().taken, 6, "{}", gpu.info.name);
        assert_eq!(second.state_dict().unwrap().sets, [SetState::new("adamw", 6)]);
    }
}

fn pollster_state(scaler: &GradScaler) -> ScalerState {
    let future = scaler.state_dict_async();
    crate::support::settle_all();
    pollster::block_on(future).unwrap()
}

#[test]
fn rebinding_keeps_the_count() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[1.0, 2.0]);
        let scaler = scaler(&gpu.context, ScalerConfig::default());
        rig.step(&scaler).unwrap();
        let other = Rig::new(&gpu.context, "other", &[3.0, 4.0, 5.0]);
        // The same layout, then another.
        for offset in [0, 4] {
            rig.set.rebind(&[slice(&other.page, offset, 2)]).unwrap();
            rig.step(&scaler).unwrap();
        }
        assert_eq!(rig.set.read_verdict().unwrap().taken, 3, "{}", gpu.info.name);
        assert_eq!(rig.set.state().unwrap().steps, 3);
    }
}

#[test]
fn sets_without_a_scaler_have_a_state_too() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "sgd", &[1.0]);
        for gradient in [1.0, f32::NAN, f32::NAN, 1.0, f32::NAN] {
            rig.put(&[gradient]);
            rig.run(|encoder| rig.set.record(encoder, 1.0, gradclip::Limit::norm(1.0)).unwrap());
        }
        let state = rig.set.state().unwrap();
        assert_eq!((state.steps, state.consecutive_skipped), (2, 1), "{}", gpu.info.name);
        let json = serde_json::to_string(&state).unwrap();

        let new = Rig::new(&gpu.context, "sgd", &[1.0]);
        new.set.load_state(&serde_json::from_str(&json).unwrap()).unwrap();
        new.run(|encoder| new.set.record(encoder, 1.0, gradclip::Limit::none()).unwrap());
        assert_eq!(new.set.read_verdict().unwrap().taken, 3, "{}", gpu.info.name);
        assert!(matches!(new.set.load_state(&SetState::new("adam", 1)), Err(Error::State { .. })));
    }
}

/// A step that was recorded and run, but not updated from, is no step of the optimizer.
#[test]
fn only_steps_that_were_updated_from_count() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[1.0]);
        let scaler = scaler(&gpu.context, ScalerConfig::default());
        let step = scaler.begin(&rig.set).unwrap().unscale();
        rig.run(|encoder| drop(step.record(encoder).unwrap()));
        assert_eq!(rig.set.read_verdict().unwrap().taken, 1);
        assert_eq!(rig.set.state().unwrap().steps, 0, "{}", gpu.info.name);
        rig.step(&scaler).unwrap();
        assert_eq!(rig.set.read_verdict().unwrap().taken, 1);
        assert_eq!(rig.set.state().unwrap().steps, 1, "{}", gpu.info.name);
    }
}

#[test]
fn report_numbers_go_on_and_reports_can_be_read_back() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[1.0, f32::INFINITY]);
        let config = ScalerConfig::default();
        let first = scaler(&gpu.context, config).with_reports(4);
        let patience = std::time::Duration::from_secs(60);
        for update in 0..2 {
            rig.step(&first).unwrap();
            let report = first.wait_report(patience).unwrap().unwrap();
            assert_eq!(report.update, update);
            let json = serde_json::to_string(&report).unwrap();
            assert!(json.contains("\"total_norm\":null"), "{json}");
            assert_eq!(serde_json::from_str::<UpdateReport>(&json).unwrap(), report);
        }
        let saved = first.state_dict().unwrap();
        let (rig, second) = restored(&rig, config, &saved);
        let second = second.with_reports(4);
        rig.step(&second).unwrap();
        assert_eq!(second.wait_report(patience).unwrap().unwrap().update, 2, "{}", gpu.info.name);
    }
}

#[test]
fn p21_pytorchs_state_is_read() {
    let json = r#"{"scale": 32768.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 7}"#;
    let torch: TorchState = serde_json::from_str(json).unwrap();
    let state = torch.state(&torch.config()).unwrap();
    assert_eq!((state.scale, state.growth_tracker), (32768.0, 7));
    assert_eq!(serde_json::to_value(torch).unwrap()["_growth_tracker"], 7);
    let other = ScalerConfig { growth_interval: 100, ..torch.config() };
    assert!(matches!(torch.state(&other), Err(Error::State { .. })));
    for gpu in gpus() {
        let scaler = scaler(&gpu.context, torch.config());
        scaler.load_state_dict(&state).unwrap();
        assert_eq!(scaler.state_dict().unwrap(), state, "{}", gpu.info.name);
    }
}
