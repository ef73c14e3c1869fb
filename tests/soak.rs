//! 20 000 updates of two optimizers with random overflows, equal to the CPU state machine after every one. Reports bring
//! the state back, a ring at a time, so that no step waits for the one before.

mod common;

use std::time::Duration;

use common::runner::upload;
use common::{adapters, gpus};
use gradclip::reference::{Outcome, TensorBits, scale_update, step};
use gradclip::{
    ClipNorm, Context, Format, GradScaler, GradSet, HysteresisRefill, LossScale, R24, ScalerConfig,
    ScalerState, StepReport, TensorSlice, wgpu,
};

/// Updates on each adapter, over all configurations.
const UPDATES: usize = 20_000;
/// The same where an update takes several times as long: SwiftShader, which compiles without optimising.
const FEWER_UPDATES: usize = 1_000;
/// Updates of one submission, and reports of the ring.
const BATCH: usize = 50;
/// Bytes of the gradients of one update: two f32 elements, then two of f16.
const BYTES: usize = 12;
const FORMATS: [Format; 2] = [Format::F32, Format::F16];
const SPANS: [std::ops::Range<usize>; 2] = [0..8, 8..12];

/// Factors that are no powers of two, a scale that strays to both sides of 1 (below it results overflow) and to both
/// ends of its range, each rule of the hysteresis, and a threshold.
fn configs() -> [(ScalerConfig, Option<f32>); 5] {
    let base = ScalerConfig {
        init_scale: 0.75,
        growth_factor: 1.37,
        backoff_factor: 0.61,
        growth_interval: 6,
        min_scale: 2f32.powi(-4),
        max_scale: 5.0,
        ..ScalerConfig::default()
    };
    let refill = HysteresisRefill::OnFiniteStep;
    [
        (base, None),
        (ScalerConfig { growth_interval: 5, growth_factor: 2.0, backoff_factor: 0.5, ..base }, Some(1.0)),
        (ScalerConfig { hysteresis: 2, skip_above: Some(4e4), ..base }, Some(8.0)),
        (ScalerConfig { hysteresis: 3, refill, ..base }, None),
        (
            ScalerConfig { init_scale: 65536.0, max_scale: ScalerConfig::default().max_scale, ..base },
            Some(1.0),
        ),
    ]
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32
    }

    /// Gradients of both optimizers: sometimes NaN or infinite, sometimes so large that a scale below 1 overflows.
    fn gradients(&mut self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let full = match self.next() % 16 {
            0 => [0x7f80_0000, 0xffc0_0001, 0x7f80_0001, 0xff80_0000][self.next() as usize % 4],
            1 => 0xff7f_ffff,
            // Magnitudes from 2^-7 to 2^9.
            _ => self.next() & 0x807f_ffff | (120 + self.next() % 16) << 23,
        };
        let half = match self.next() % 16 {
            0 => [0x7c00, 0xfc00, 0x7e00, 0xfdff][self.next() as usize % 4],
            1 => 0x7bff,
            _ => self.next() & 0x83ff | (8 + self.next() % 16) << 10,
        };
        bytes[..4].copy_from_slice(&full.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.next() & 0x3fff_ffff).to_le_bytes());
        bytes[8..10].copy_from_slice(&(half as u16).to_le_bytes());
        bytes[10..].copy_from_slice(&(self.next() as u16 & 0x3fff).to_le_bytes());
        bytes
    }
}

/// What the soak met, so that a change that makes it tame does not pass for a success.
#[derive(Debug, Default)]
struct Met {
    found_inf: usize,
    overflow: usize,
    above: usize,
    clipped: u32,
    grown: usize,
    at_floor: usize,
    at_top: usize,
}

/// The CPU state machine.
struct Machine {
    config: ScalerConfig,
    clip: Option<ClipNorm>,
    state: ScalerState,
}

impl Machine {
    /// One update; returns what each optimizer's step has to report.
    fn update(&mut self, gradients: &[u8; BYTES], met: &mut Met) -> [(Outcome, bool); 2] {
        let scale = LossScale::new(self.state.scale).unwrap();
        let (mut found_inf, mut overflow, mut left_out) = (false, false, false);
        let steps = [0, 1].map(|i| {
            let mut bytes = gradients[SPANS[i].clone()].to_vec();
            let tensor = TensorBits::new(FORMATS[i], &mut bytes);
            let mut outcome = step(&mut [tensor], scale, self.clip);
            let nonfinite = outcome.found_inf && !outcome.overflow;
            let limit = self.config.skip_above.map_or(f64::INFINITY, f64::from);
            let above = !nonfinite && outcome.total_norm.to_f64() > limit;
            if above {
                (outcome.skipped, outcome.above) = (true, true);
                (outcome.found_inf, outcome.overflow) = (false, false);
                (outcome.coefficient, outcome.factor) = (R24::ZERO, R24::ZERO);
            }
            found_inf |= nonfinite;
            overflow |= outcome.overflow;
            left_out |= outcome.overflow || above;
            self.state.above += u32::from(above);
            let taken = !above && !outcome.found_inf;
            self.state.stepped += u32::from(taken);
            self.state.clipped += u32::from(taken && outcome.coefficient != R24::ONE);
            met.above += usize::from(above);
            (outcome, above)
        });
        let before = self.state.scale;
        scale_update(&self.config, &mut self.state, found_inf, left_out);
        met.found_inf += usize::from(found_inf);
        met.overflow += usize::from(overflow && !found_inf);
        met.grown += usize::from(self.state.scale > before);
        met.at_floor += usize::from(self.state.scale == self.config.min_scale);
        let could_grow = self.state.growth_tracker == 0 && !found_inf && !left_out;
        met.at_top += usize::from(could_grow && self.state.scale == before);
        steps
    }
}

fn check_step(at: &str, got: &StepReport, (want, above): &(Outcome, bool)) {
    let report = &got.report;
    assert!(got.ran, "{at}");
    assert_eq!(
        (report.found_inf, report.overflow, report.above),
        (want.found_inf, want.overflow, *above),
        "{at}: {want:?}"
    );
    let bits = [report.total_norm, report.coefficient, report.factor].map(|number| number.map(f64::to_bits));
    // Of what was not measured or not done there is no number.
    let measured = !want.found_inf || want.overflow;
    let wanted =
        [(measured, want.total_norm), (!want.skipped, want.coefficient), (!want.skipped, want.factor)]
            .map(|(there, number)| there.then(|| number.to_f64().to_bits()));
    assert_eq!(bits, wanted, "{at}");
    assert_eq!([report.nonfinite_in("weight")], want.nonfinite[..], "{at}");
}

/// Runs `updates` updates of one configuration.
fn run(
    gpu: &Context,
    config: ScalerConfig,
    clip: Option<f32>,
    updates: usize,
    random: &mut Random,
    met: &mut Met,
) {
    let clip = clip.map(|max_norm| ClipNorm::new(max_norm).unwrap());
    let backward = upload(gpu, &[0; BATCH * BYTES]);
    let pages = SPANS.map(|span| upload(gpu, &vec![0; span.len()]));
    let sets = [0, 1].map(|i| {
        let slice = TensorSlice { buffer: &pages[i], offset: 0, len: 2, format: FORMATS[i] };
        GradSet::builder(["decay", "no decay"][i]).tensor("weight", slice).build(gpu).unwrap()
    });
    let scaler = GradScaler::new(gpu, config).unwrap().with_reports(BATCH);
    let mut machine = Machine { config, clip, state: ScalerState::new(&config) };
    let mut done = 0;
    while done < updates {
        let batch: Vec<[u8; BYTES]> = (0..BATCH).map(|_| random.gradients()).collect();
        gpu.queue().write_buffer(&backward, 0, batch.as_flattened());
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for i in 0..BATCH {
            let steps = [0, 1].map(|s| {
                let open = scaler.begin(&sets[s]).unwrap();
                let at = (i * BYTES + SPANS[s].start) as u64;
                encoder.copy_buffer_to_buffer(&backward, at, &pages[s], 0, SPANS[s].len() as u64);
                match clip {
                    Some(clip) => open.unscale().limit(clip).record(&mut encoder).unwrap(),
                    None => open.unscale().record(&mut encoder).unwrap(),
                }
            });
            scaler.update(&mut encoder, steps).unwrap();
        }
        gpu.queue().submit([encoder.finish()]);
        for gradients in &batch {
            let scale = machine.state.scale;
            let want = machine.update(gradients, met);
            let update =
                scaler.wait_report(Duration::from_secs(60)).unwrap().expect("a report of each update");
            let at = format!("update {done} at scale {scale} of {config:?}");
            assert_eq!(update.update, done as u64);
            for (step, want) in update.steps.iter().zip(&want) {
                assert_eq!(step.report.scale.to_bits(), scale.to_bits(), "{at}");
                check_step(&at, step, want);
            }
            let (next_update, sets) = (update.update + 1, update.scaler.sets.clone());
            assert_eq!(sets.iter().map(|set| set.steps).sum::<u32>(), machine.state.stepped, "{at}");
            let state = ScalerState { next_update, sets, ..machine.state.clone() };
            assert_eq!(update.scaler, state, "{at}");
            assert_eq!(update.scaler.scale.to_bits(), machine.state.scale.to_bits(), "{at}");
            done += 1;
        }
    }
    met.clipped += machine.state.clipped;
    assert_eq!(scaler.lost_reports(), 0);
    let state = scaler.state_dict().unwrap();
    assert_eq!(state.next_update, done as u64);
    assert_eq!(state.sets.iter().map(|set| set.steps).sum::<u32>(), machine.state.stepped);
    assert_eq!(ScalerState { next_update: 0, sets: Vec::new(), ..state }, machine.state);
}

#[test]
fn twenty_thousand_updates_follow_the_cpu_state_machine() {
    for gpu in gpus() {
        let label = adapters::label(&gpu.info);
        let updates = if label.contains("SwiftShader") { FEWER_UPDATES } else { UPDATES };
        let mut met = Met::default();
        let mut random = Random(7);
        for (config, clip) in configs() {
            run(&gpu.context, config, clip, updates / configs().len(), &mut random, &mut met);
        }
        eprintln!("{label}: {updates} updates, {met:?}");
        let least = [
            (met.found_inf, 10),
            (met.overflow, 100),
            (met.above, 100),
            (met.clipped as usize, 10),
            (met.grown, 20),
            (met.at_floor, 100),
            (met.at_top, 100),
        ];
        for (count, one_in) in least {
            assert!(count * one_in >= updates, "too tame: {met:?}");
        }
    }
}
