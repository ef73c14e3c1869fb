//! `scaler.json`: sequences of updates with the scale that has to follow each.

use std::path::Path;

use gradclip::{
    Context, Format, GradScaler, GradSet, HysteresisRefill, LossScale, ScalerConfig, ScalerState, TensorSlice,
};
use serde::Deserialize;

use super::case_file::{self, Real};
use super::runner::{Tally, upload};

/// The cases that the repository ships.
pub const BUILT_IN: &str = include_str!("../../tests/data/scaler.json");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(default, rename = "source")]
    _source: Option<String>,
    config: Config,
    updates: Vec<Update>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    scale: Real,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u32,
    hysteresis: u32,
    min_scale: Real,
    max_scale: Real,
    refill_on_finite: bool,
    growth_tracker: u32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    found_inf: bool,
    overflow: bool,
    scale: Real,
    growth_tracker: u32,
    skipped: u32,
    consecutive_skipped: u32,
}

/// Reads cases from JSON text.
pub fn parse(json: &str) -> Result<Vec<Case>, String> {
    case_file::parse(json, Case::ready)
}

/// Reads cases from a file.
pub fn read(path: &Path) -> Result<Vec<Case>, String> {
    case_file::read(path, parse)
}

/// Every update of every case on the GPU, and in the reference.
pub fn run(gpu: &Context, cases: &[Case]) -> Tally {
    let mut tally = Tally::default();
    for case in cases {
        tally.note(|| format!("{}, reference", case.name), Ok(on_reference(case)));
        tally.note(|| format!("{}, scaler", case.name), on_gpu(gpu, case));
    }
    tally
}

impl Case {
    fn ready(self) -> Result<Self, String> {
        LossScale::new(self.config.scale.0).map_err(|e| format!("config.scale: {e}"))?;
        self.config().check().map_err(|e| format!("config: {e}"))?;
        if self.updates.is_empty() {
            return Err("updates: none, which proves nothing".into());
        }
        for (i, update) in self.updates.iter().enumerate() {
            LossScale::new(update.scale.0).map_err(|e| format!("updates[{i}].scale: {e}"))?;
        }
        Ok(self)
    }

    fn config(&self) -> ScalerConfig {
        let c = &self.config;
        ScalerConfig {
            init_scale: c.scale.0,
            growth_factor: c.growth_factor,
            backoff_factor: c.backoff_factor,
            growth_interval: c.growth_interval,
            hysteresis: c.hysteresis,
            min_scale: c.min_scale.0,
            max_scale: c.max_scale.0,
            refill: if c.refill_on_finite {
                HysteresisRefill::OnFiniteStep
            } else {
                HysteresisRefill::OnGrowth
            },
            ..ScalerConfig::default()
        }
    }

    fn start(&self) -> ScalerState {
        ScalerState { growth_tracker: self.config.growth_tracker, ..ScalerState::new(&self.config()) }
    }
}

fn difference(step: usize, got: &ScalerState, want: &Update) -> Option<String> {
    let got_row = (got.scale, got.growth_tracker, got.skipped, got.consecutive_skipped);
    let want_row = (want.scale.0, want.growth_tracker, want.skipped, want.consecutive_skipped);
    (got_row.0.to_bits() != want_row.0.to_bits() || got_row != want_row).then(|| {
        format!("update {step}: scale, tracker, skipped, in a row {got_row:?}, expected {want_row:?}")
    })
}

fn on_reference(case: &Case) -> Option<String> {
    let mut state = case.start();
    case.updates.iter().enumerate().find_map(|(i, update)| {
        gradclip::reference::scale_update(&case.config(), &mut state, update.found_inf, update.overflow);
        difference(i, &state, update)
    })
}

fn on_gpu(gpu: &Context, case: &Case) -> Result<Option<String>, String> {
    let text = |e: gradclip::Error| e.to_string();
    let page = upload(gpu, &[0; 4]);
    let slice = TensorSlice { buffer: &page, offset: 0, len: 1, format: Format::F32 };
    let set = GradSet::builder("optimizer").tensor("gradient", slice).build(gpu).map_err(text)?;
    let scaler = GradScaler::new(gpu, case.config()).map_err(text)?;
    scaler.load_state_dict(&case.start()).map_err(text)?;
    for (i, update) in case.updates.iter().enumerate() {
        // The largest f32 overflows when it is divided by a scale below 1.
        let gradient = match (update.found_inf, update.overflow) {
            (true, _) => f32::INFINITY,
            (false, true) => f32::MAX,
            _ => 1.0,
        };
        gpu.queue().write_buffer(&page, 0, &gradient.to_le_bytes());
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        let step = scaler.begin(&set).map_err(text)?.unscale().record(&mut encoder).map_err(text)?;
        scaler.update(&mut encoder, [step]).map_err(text)?;
        gpu.queue().submit([encoder.finish()]);
        let state = scaler.state_dict().map_err(text)?;
        if let Some(difference) = difference(i, &state, update) {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}
