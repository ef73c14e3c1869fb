//! `state_dict` and `load_state_dict`: a scaler that goes on from a saved state is the one that was never stopped.

mod common;

#[path = "scaler_state/json.rs"]
#[cfg(feature = "serde")]
mod json;
#[path = "scaler_state/random.rs"]
mod random;

use common::gpus;
use common::runner::upload;
use gradclip::{
    Context, Error, Format, GradScaler, GradSet, HysteresisRefill, ScaleMode, ScalerConfig, ScalerState,
    SetState, TensorSlice, wgpu,
};
use random::Random;

/// An optimizer with one element, for a scaler that needs something to update from.
struct Optimizer {
    gpu: Context,
    page: wgpu::Buffer,
    set: GradSet,
}

impl Optimizer {
    fn new(gpu: &Context) -> Self {
        let page = upload(gpu, &[0; 4]);
        let slice = TensorSlice { buffer: &page, offset: 0, len: 1, format: Format::F32 };
        let set = GradSet::builder("adamw").tensor("weight", slice).build(gpu).unwrap();
        Self { gpu: gpu.clone(), page, set }
    }

    fn step(&self, scaler: &GradScaler, gradient: f32) {
        self.gpu.queue().write_buffer(&self.page, 0, &gradient.to_le_bytes());
        let mut encoder =
            self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let step = scaler.begin(&self.set).unwrap().unscale().record(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
        self.gpu.queue().submit([encoder.finish()]);
    }
}

/// Bit for bit: `==` would take 0 for -0.
fn assert_same(got: &ScalerState, want: &ScalerState, at: &str) {
    assert_eq!(got, want, "{at}");
    assert_eq!(got.scale.to_bits(), want.scale.to_bits(), "{at}");
}

fn uneven() -> [ScalerConfig; 3] {
    let base = ScalerConfig {
        init_scale: 1000.3,
        growth_factor: 1.3,
        backoff_factor: 0.7,
        growth_interval: 3,
        hysteresis: 2,
        ..ScalerConfig::default()
    };
    let refill = HysteresisRefill::OnFiniteStep;
    [
        base,
        ScalerConfig { hysteresis: 3, refill, min_scale: 900.0, max_scale: 1500.0, ..base },
        ScalerConfig { growth_factor: 1.0 + f64::EPSILON, backoff_factor: 0.1, growth_interval: 1, ..base },
    ]
}

/// One scaler runs on; another is saved and loaded into a fresh one at random places, once in the middle of an error
/// state. After each step both have the same state.
#[test]
fn a_scaler_goes_on_from_its_state_bit_for_bit() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (one, two) = (Optimizer::new(gpu), Optimizer::new(gpu));
        for (i, config) in uneven().into_iter().enumerate() {
            let mut random = Random(i as u64 + 1);
            let uninterrupted = GradScaler::new(gpu, config).unwrap();
            let mut resumed = GradScaler::new(gpu, config).unwrap();
            let mut loads = 0;
            for step in 0..150 {
                let gradient = [f32::INFINITY, f32::NAN, 1.0, -2.0, 0.5, 1e30][random.next() as usize % 6];
                one.step(&uninterrupted, gradient);
                two.step(&resumed, gradient);
                if random.next().is_multiple_of(5) {
                    let state = resumed.state_dict().unwrap();
                    resumed = GradScaler::new(gpu, config).unwrap();
                    resumed.load_state_dict(&state).unwrap();
                    assert_same(&resumed.state_dict().unwrap(), &state, "right after the load");
                    loads += 1;
                }
                if step % 10 == 9 {
                    let states = [&uninterrupted, &resumed].map(|s| s.state_dict().unwrap());
                    assert_same(&states[1], &states[0], &format!("step {step} of {config:?}"));
                }
            }
            assert!(loads > 15, "{loads} loads");
            let state = uninterrupted.state_dict().unwrap();
            assert!(state.skipped > 20 && state.stepped > 50, "{state:?}");
            assert_ne!(state.scale, config.init_scale);
        }
    }
}

/// A load counts from the next submission on, for the gradients too.
#[test]
fn the_loaded_scale_is_the_one_that_unscales() {
    for gpu in gpus() {
        let adamw = Optimizer::new(&gpu.context);
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::default()).unwrap();
        let state = ScalerState { scale: 4.0, ..ScalerState::new(scaler.config()) };
        scaler.load_state_dict(&state).unwrap();
        adamw.step(&scaler, 12.0);
        let report = adamw.set.read_report().unwrap();
        assert_eq!((report.scale, report.total_norm), (4.0, Some(3.0)));
    }
}

/// Every counter survives, at the ends of its range.
#[test]
fn every_field_survives_at_its_ends() {
    let config = ScalerConfig { hysteresis: u32::MAX, ..ScalerConfig::default() };
    let set = |name: &str, steps| {
        let mut set = SetState::new(name, steps);
        set.consecutive_skipped = steps - 1;
        set
    };
    let ends = ScalerState {
        version: ScalerState::VERSION,
        scale: config.max_scale,
        growth_tracker: 1999,
        hysteresis_left: u32::MAX,
        skipped: u32::MAX - 1,
        consecutive_skipped: u32::MAX - 2,
        updates: u32::MAX,
        stepped: u32::MAX - 3,
        clipped: u32::MAX - 4,
        above: u32::MAX - 5,
        missed: u32::MAX - 6,
        next_update: u64::MAX,
        sets: vec![set("adamw", u32::MAX), set("a set that is not here", 1)],
    };
    for gpu in gpus() {
        let scaler = GradScaler::new(&gpu.context, config).unwrap();
        let smallest = ScalerState { scale: config.min_scale, ..ends.clone() };
        for mut state in [ends.clone(), smallest, ScalerState::new(&config)] {
            scaler.load_state_dict(&state).unwrap();
            let mut got = scaler.state_dict().unwrap();
            // What was loaded for sets that the scaler has not seen is in no order.
            got.sets.sort_by(|a, b| a.set.cmp(&b.set));
            state.sets.sort_by(|a, b| a.set.cmp(&b.set));
            assert_same(&got, &state, "ends");
        }
    }
}

/// A state that does not fit is refused with a reason, and the scaler is as it was.
#[test]
fn a_wrong_state_is_refused_and_changes_nothing() {
    let config = ScalerConfig { hysteresis: 2, min_scale: 1.0, max_scale: 1e6, ..ScalerConfig::default() };
    let good = ScalerState {
        scale: 512.0,
        skipped: 3,
        consecutive_skipped: 1,
        updates: 9,
        stepped: 6,
        clipped: 2,
        next_update: 9,
        sets: vec![SetState::new("adamw", 6)],
        ..ScalerState::new(&config)
    };
    let scale = |scale| ScalerState { scale, ..good.clone() };
    let range = "is not between min_scale 1 and max_scale 1000000";
    let wrong = [
        (
            ScalerState { version: 1, ..good.clone() },
            "it has version 1, but this release reads version 2; version 1 (0.1) lacks next_update and the steps of \
             the sets, which are for the caller to add"
                .into(),
        ),
        (
            ScalerState { version: 3, ..good.clone() },
            "it has version 3, but this release reads version 2; version 1 (0.1) lacks next_update and the steps of \
             the sets, which are for the caller to add"
                .into(),
        ),
        (scale(0.5), format!("its scale 0.5 {range}")),
        (scale(1_000_000.06), format!("its scale 1000000.06 {range}")),
        (scale(0.0), format!("its scale 0 {range}")),
        (scale(-512.0), format!("its scale -512 {range}")),
        (scale(f32::NAN), format!("its scale NaN {range}")),
        (scale(f32::INFINITY), format!("its scale inf {range}")),
        (ScalerState { hysteresis_left: 3, ..good.clone() }, "its hysteresis_left 3 is above hysteresis 2".into()),
        (
            ScalerState { consecutive_skipped: 4, ..good.clone() },
            "its counts contradict each other: 4 skipped in a row, 3 skipped, 9 updates".into(),
        ),
        (
            ScalerState { skipped: 10, ..good.clone() },
            "its counts contradict each other: 1 skipped in a row, 10 skipped, 9 updates".into(),
        ),
        (ScalerState { clipped: 7, ..good.clone() }, "it has 7 clipped of 6 steps".into()),
        (
            ScalerState { sets: ["adamw", "muon", "adamw"].map(|set| SetState::new(set, 1)).into(), ..good.clone() },
            "it has two sets named \"adamw\"".into(),
        ),
    ];
    for gpu in gpus() {
        let adamw = Optimizer::new(&gpu.context);
        let scaler = GradScaler::new(&gpu.context, config).unwrap();
        adamw.step(&scaler, 3.0);
        let before = scaler.state_dict().unwrap();
        for (state, what) in &wrong {
            let refused = scaler.load_state_dict(state);
            assert_eq!(refused, Err(Error::State { what: what.clone() }));
            let text = refused.unwrap_err().to_string();
            assert_eq!(text, format!("the scaler state cannot be loaded: {what}"));
            assert_same(&scaler.state_dict().unwrap(), &before, what);
        }
        assert_eq!(scaler.load_state_dict(&good), Ok(()));
        assert_same(&scaler.state_dict().unwrap(), &good, "the good one");
    }
}

/// A scale that stands still cannot be loaded to another: a checkpoint of f16 training into a run in bf16, say.
#[test]
fn a_scale_that_stands_still_refuses_another() {
    for gpu in gpus() {
        for (config, mode) in [
            (ScalerConfig::disabled(), "disabled and stays at 1"),
            (ScalerConfig::constant(1024.0), "constant and stays at 1024"),
        ] {
            let scaler = GradScaler::new(&gpu.context, config).unwrap();
            let saved = ScalerState { updates: 5, ..ScalerState::new(&ScalerConfig::default()) };
            let refused = scaler.load_state_dict(&saved).unwrap_err().to_string();
            assert_eq!(
                refused,
                format!("the scaler state cannot be loaded: its scale is 65536, but this scaler is {mode}")
            );
            assert_same(&scaler.state_dict().unwrap(), &ScalerState::new(&config), "unchanged");
            assert_ne!(scaler.config().mode, ScaleMode::Dynamic);
            let own = ScalerState { updates: 5, skipped: 1, ..ScalerState::new(&config) };
            scaler.load_state_dict(&own).unwrap();
            assert_same(&scaler.state_dict().unwrap(), &own, "its own");
        }
    }
}

/// While a step is open the scale stands still, against a load too.
#[test]
fn a_load_while_a_step_is_open_is_refused() {
    for gpu in gpus() {
        let adamw = Optimizer::new(&gpu.context);
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::default()).unwrap();
        let before = scaler.state_dict().unwrap();
        let state = ScalerState { scale: 2.0, ..before.clone() };
        let mut encoder =
            gpu.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let refused = Err(Error::LeftOut { set: "adamw".into() });
        let open = scaler.begin(&adamw.set).unwrap();
        assert_eq!(scaler.load_state_dict(&state), refused);
        let unscaled = open.unscale();
        assert_eq!(scaler.load_state_dict(&state), refused);
        let recorded = unscaled.record(&mut encoder).unwrap();
        assert_eq!(scaler.load_state_dict(&state), refused);
        let now = scaler.state_dict().unwrap();
        assert_same(&now, &ScalerState { sets: vec![SetState::new("adamw", 0)], ..before }, "unchanged");
        scaler.update(&mut encoder, [recorded]).unwrap();
        assert_eq!(scaler.load_state_dict(&state), Ok(()));
    }
}
