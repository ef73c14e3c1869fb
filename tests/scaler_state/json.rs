//! The state as JSON, as a checkpoint stores it.

use gradclip::{Error, GradScaler, ScalerConfig, ScalerState};
use serde_json::{Value, json};

use crate::common::gpus;
use crate::random::Random;
use crate::{Optimizer, assert_same};

fn saved() -> Value {
    json!({
        "version": 2, "scale": 512.0, "growth_tracker": 7, "hysteresis_left": 1, "skipped": 3,
        "consecutive_skipped": 1, "updates": 9, "stepped": 6, "clipped": 2, "above": 0, "missed": 0,
        "next_update": 9, "sets": [{ "set": "adamw", "steps": 6, "consecutive_skipped": 1 }],
    })
}

fn parse(value: &Value) -> Result<ScalerState, String> {
    serde_json::from_str(&value.to_string()).map_err(|e| e.to_string())
}

#[test]
fn the_text_is_readable_and_in_order() {
    let state = ScalerState { scale: 1000.3, ..ScalerState::new(&ScalerConfig::default()) };
    assert_eq!(
        serde_json::to_string(&state).unwrap(),
        r#"{"version":2,"scale":1000.3,"growth_tracker":0,"hysteresis_left":1,"skipped":0,"consecutive_skipped":0,"updates":0,"stepped":0,"clipped":0,"above":0,"missed":0,"next_update":0,"sets":[]}"#
    );
    assert_eq!(parse(&saved()).unwrap().scale, 512.0);
}

#[test]
fn thousands_of_scales_survive_on_every_bit() {
    let config = ScalerConfig::default();
    let mut random = Random(3);
    let ends = [config.min_scale, config.max_scale, 1.0, 1.0f32.next_up(), 1.0f32.next_down(), 65536.0];
    let drawn = std::iter::repeat_with(|| f32::from_bits(random.next() & 0x7fff_ffff));
    let scales = drawn.filter(|s| (config.min_scale..=config.max_scale).contains(s)).take(20_000);
    for scale in scales.chain(ends) {
        let state = ScalerState { scale, ..ScalerState::new(&config) };
        for text in [serde_json::to_string(&state).unwrap(), serde_json::to_string_pretty(&state).unwrap()] {
            let back: ScalerState = serde_json::from_str(&text).unwrap();
            assert_eq!(back.scale.to_bits(), scale.to_bits(), "{text}");
            assert_eq!(back, state);
        }
    }
}

#[test]
fn a_scaler_goes_on_from_json() {
    let config = ScalerConfig {
        growth_factor: 1.3,
        backoff_factor: 0.7,
        growth_interval: 2,
        hysteresis: 2,
        ..ScalerConfig::default()
    };
    for gpu in gpus() {
        let (one, two) = (Optimizer::new(&gpu.context), Optimizer::new(&gpu.context));
        let uninterrupted = GradScaler::new(&gpu.context, config).unwrap();
        let mut resumed = GradScaler::new(&gpu.context, config).unwrap();
        let mut random = Random(11);
        for step in 0..60 {
            let gradient = if random.next().is_multiple_of(3) { f32::NAN } else { 1.0 };
            one.step(&uninterrupted, gradient);
            two.step(&resumed, gradient);
            let text = serde_json::to_string(&resumed.state_dict().unwrap()).unwrap();
            resumed = GradScaler::new(&gpu.context, config).unwrap();
            resumed.load_state_dict(&serde_json::from_str(&text).unwrap()).unwrap();
            let states = [&uninterrupted, &resumed].map(|s| s.state_dict().unwrap());
            assert_same(&states[1], &states[0], &format!("step {step}"));
        }
    }
}

#[test]
fn every_field_is_needed_and_no_other_is_taken() {
    for field in saved().as_object().unwrap().keys() {
        let mut without = saved();
        without.as_object_mut().unwrap().remove(field);
        let error = parse(&without).unwrap_err();
        assert!(error.contains(&format!("missing field `{field}`")), "{error}");
    }
    let mut more = saved();
    more["loss_scale"] = json!(2.0);
    let error = parse(&more).unwrap_err();
    assert!(error.contains("unknown field `loss_scale`, expected one of `version`"), "{error}");
}

#[test]
fn text_that_is_no_state_is_an_error_that_says_where() {
    let text = saved().to_string();
    for end in 0..text.len() {
        assert!(serde_json::from_str::<ScalerState>(&text[..end]).is_err(), "{}", &text[..end]);
    }
    for (field, value, says) in [
        ("scale", Value::Null, "invalid type: null, expected f32"),
        ("scale", json!("512"), "invalid type: string \"512\", expected f32"),
        ("scale", json!(1e39), "number out of range"),
        ("growth_tracker", json!(-1), "invalid value: integer `-1`, expected u32"),
        ("updates", json!(1u64 << 32), "invalid value: integer `4294967296`, expected u32"),
        ("skipped", json!(1.5), "invalid type: floating point `1.5`, expected u32"),
        ("version", json!("1"), "invalid type: string \"1\", expected u32"),
    ] {
        let mut wrong = saved();
        wrong[field] = value;
        let error = parse(&wrong).unwrap_err();
        assert!(error.contains(says), "{field}: {error}");
    }
    // JSON has no NaN: what a NaN is written as is not read back.
    let nan = ScalerState { scale: f32::NAN, ..ScalerState::new(&ScalerConfig::default()) };
    assert!(serde_json::from_str::<ScalerState>(&serde_json::to_string(&nan).unwrap()).is_err());
}

/// What is a state by its form is still checked by the scaler, which stays as it was.
#[test]
fn what_parses_is_still_checked() {
    for gpu in gpus() {
        let adamw = Optimizer::new(&gpu.context);
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::default()).unwrap();
        adamw.step(&scaler, 1.0);
        let before = scaler.state_dict().unwrap();
        for (field, value, says) in [
            ("version", json!(1), "it has version 1, but this release reads version 2"),
            ("version", json!(3), "it has version 3, but this release reads version 2"),
            ("scale", json!(0.0), "its scale 0 is not between"),
            // Below the smallest normal f32.
            ("scale", json!(1e-39), "its scale 0.000000000000000000000000000000000000001 is not between"),
            ("consecutive_skipped", json!(4), "its counts contradict each other"),
            ("clipped", json!(7), "it has 7 clipped of 6 steps"),
            ("hysteresis_left", json!(2), "its hysteresis_left 2 is above hysteresis 1"),
        ] {
            let mut wrong = saved();
            wrong[field] = value;
            let refused = scaler.load_state_dict(&parse(&wrong).unwrap());
            assert!(matches!(&refused, Err(Error::State { what }) if what.contains(says)), "{refused:?}");
            assert_same(&scaler.state_dict().unwrap(), &before, field);
        }
        scaler.load_state_dict(&parse(&saved()).unwrap()).unwrap();
        assert_eq!(scaler.state_dict().unwrap().scale, 512.0);
    }
}
