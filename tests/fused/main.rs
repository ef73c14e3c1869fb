//! Deferred mode: an optimizer's kernel that reads the verdict gives what scaling in place and then optimizing gives.

#[path = "../common/mod.rs"]
mod common;

mod rules;
mod world;

use common::gpus;
use gradclip::{ClipNorm, Context, GradScaler, LossScale, ScalerConfig, wgpu};
use rules::Rule;
use world::World;

/// Numbers without a pattern, of magnitudes from 0.5 to 2, both signs.
fn mixed(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let number = |bits: u32, sign: u32| {
        f32::from_bits(0x3f00_0000 + bits % 0x100_0000) * (1.0 - 2.0 * (sign & 1) as f32)
    };
    (0..len).map(|_| number(random(), random() >> 12)).collect()
}

const ELEMENTS: usize = 1000;

fn gradients(step: u32, scale: f32) -> Vec<f32> {
    mixed(100 + step, ELEMENTS).iter().map(|g| g * 0.01 * scale).collect()
}

fn encoder(gpu: &Context) -> wgpu::CommandEncoder {
    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// How many f32 numbers lie between two.
fn ulps(a: f32, b: f32) -> u32 {
    let ordered = |v: f32| {
        if v.is_sign_negative() { -((v.to_bits() & 0x7fff_ffff) as i32) } else { v.to_bits() as i32 }
    };
    ordered(a).abs_diff(ordered(b))
}

/// Both worlds after every step; `allowed` ulps between them.
fn compare(scale: f32, clip: Option<ClipNorm>, apply: u32, allowed: u32) {
    let scale_value = LossScale::new(scale).unwrap();
    for gpu in gpus() {
        let gpu = &gpu.context;
        for rule in [Rule::Sgd, Rule::AdamW] {
            let start = mixed(1, ELEMENTS);
            let scaled = World::new(gpu, rule, &start, "from_scaled");
            let deferred = World::new(gpu, rule, &start, "deferred");
            let mut model = rules::Model::new(rule, &start);
            for step in 1..=6 {
                let gradients = gradients(step, scale);
                for world in [&scaled, &deferred] {
                    world.put(gpu, &gradients);
                    let mut encoder = encoder(gpu);
                    world.record(&mut encoder, scale_value, clip);
                    world.optimize(gpu, &mut encoder, step);
                    gpu.queue().submit([encoder.finish()]);
                }
                let report = deferred.set.read_report().unwrap();
                assert_eq!(report, scaled.set.read_report().unwrap());
                assert_eq!(deferred.verdict(gpu).apply, apply);
                assert_eq!(deferred.gradients(gpu), gradients, "deferred mode writes no gradient");

                let [a, b] = [&scaled, &deferred].map(|world| world.state(gpu));
                let apart = a.iter().zip(&b).map(|(&a, &b)| ulps(a, b)).max();
                assert!(apart <= Some(allowed), "{rule:?} step {step}: {apart:?} ulps apart");
                // And it is the rule, not two kernels that do nothing.
                model.step(&gradients, report.factor.unwrap_or(0.0));
                let wrong = model
                    .parameters
                    .iter()
                    .zip(&a)
                    .find(|(want, got)| (*want - f64::from(**got)).abs() > 1e-6);
                assert_eq!(wrong, None, "{rule:?} step {step}");
            }
        }
    }
}

#[test]
fn the_same_bits_where_the_factor_is_a_power_of_two() {
    // Nothing to do, unscaling, and a factor that f32 does not hold.
    compare(1.0, None, 0, 0);
    compare(1024.0, None, 1, 0);
    compare(2f32.powi(127), None, 2, 0);
}

/// The norm is 5 exactly and the limit 1.25.
#[test]
fn the_same_bits_where_clipping_is_by_a_power_of_two() {
    let clip = ClipNorm::new(1.25).unwrap().with_eps(0.0).unwrap();
    for gpu in gpus() {
        let gpu = &gpu.context;
        for rule in [Rule::Sgd, Rule::AdamW] {
            let start = [0.75, -1.5];
            let states = ["from_scaled", "deferred"].map(|entry| {
                let world = World::new(gpu, rule, &start, entry);
                for step in 1..=3 {
                    world.put(gpu, &[24.0, 32.0]);
                    let mut encoder = encoder(gpu);
                    world.record(&mut encoder, LossScale::new(8.0).unwrap(), Some(clip));
                    world.optimize(gpu, &mut encoder, step);
                    gpu.queue().submit([encoder.finish()]);
                    let report = world.set.read_report().unwrap();
                    assert_eq!(
                        (report.total_norm, report.coefficient, report.factor),
                        (Some(5.0), Some(0.25), Some(1.0 / 32.0))
                    );
                }
                world.state(gpu).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert_eq!(states[0], states[1], "{rule:?}");
        }
    }
}

#[test]
fn within_1_ulp_otherwise() {
    let clip = Some(ClipNorm::new(0.1).unwrap());
    compare(1000.0, None, 1, 1);
    compare(1024.0, clip, 1, 1);
    compare(2f32.powi(127), clip, 2, 1);
}

/// A buffer that no step has written yet must not be read as "multiply by 0".
#[test]
fn before_any_step_nothing_moves() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        for rule in [Rule::Sgd, Rule::AdamW] {
            let start = mixed(1, ELEMENTS);
            for entry in ["from_scaled", "deferred"] {
                let world = World::new(gpu, rule, &start, entry);
                world.put(gpu, &gradients(1, 1.0));
                let before = world.state(gpu);
                let mut encoder = encoder(gpu);
                world.optimize(gpu, &mut encoder, 1);
                gpu.queue().submit([encoder.finish()]);
                assert_eq!(world.state(gpu), before);
                let verdict = world.verdict(gpu);
                assert_eq!((verdict.skip, verdict.factor, verdict.run), (1, 0.0, 0));
            }
        }
    }
}

/// For each of the three reasons, in the middle of a run and under a scaler: parameters and moments stay, bit for bit,
/// and the run goes on from there.
#[test]
fn a_skipped_step_leaves_parameters_and_moments() {
    let config = ScalerConfig { skip_above: Some(1e6), ..ScalerConfig::constant(0.5) };
    for gpu in gpus() {
        let gpu = &gpu.context;
        for rule in [Rule::Sgd, Rule::AdamW] {
            for entry in ["from_scaled", "deferred"] {
                let scaler = GradScaler::new(gpu, config).unwrap();
                let unlimited = GradScaler::new(gpu, ScalerConfig::constant(0.5)).unwrap();
                let world = World::new(gpu, rule, &mixed(1, ELEMENTS), entry);
                let step = |number: u32, scaler: &GradScaler, gradients: &[f32]| {
                    world.put(gpu, gradients);
                    let mut encoder = encoder(gpu);
                    let clipped =
                        scaler.begin(&world.set).unwrap().unscale().limit(ClipNorm::new(1.0).unwrap());
                    let recorded = if world.deferred {
                        clipped.record_deferred(&mut encoder).unwrap()
                    } else {
                        clipped.record(&mut encoder).unwrap()
                    };
                    world.optimize(gpu, &mut encoder, number);
                    scaler.update(&mut encoder, [recorded]).unwrap();
                    gpu.queue().submit([encoder.finish()]);
                    let verdict = world.verdict(gpu);
                    ([verdict.skip, verdict.found_inf, verdict.overflow, verdict.above], world.state(gpu))
                };
                let good = gradients(1, 0.5);
                let with = |value: f32| {
                    let mut bad = good.clone();
                    bad[ELEMENTS / 2] = value;
                    bad
                };
                let (why, mut before) = step(1, &scaler, &good);
                assert_eq!(why, [0, 0, 0, 0]);
                for (scaler, bad, expected) in [
                    (&scaler, with(f32::NAN), [1, 1, 0, 0]),
                    (&scaler, with(f32::NEG_INFINITY), [1, 1, 0, 0]),
                    (&scaler, with(1e7), [1, 0, 0, 1]),
                ] {
                    let (why, after) = step(2, scaler, &bad);
                    assert_eq!((why, &after), (expected, &before));
                }
                let (why, after) = step(2, &scaler, &good);
                assert_eq!(why, [0, 0, 0, 0]);
                assert!(after.iter().zip(&before).take(ELEMENTS).all(|(a, b)| a.to_bits() != b.to_bits()));
                before = after;
                // Without a limit of the norm, a result that f32 does not hold.
                world.put(gpu, &with(f32::MAX));
                let mut encoder = encoder(gpu);
                let open = unlimited.begin(&world.set).unwrap().unscale();
                let recorded = if world.deferred {
                    open.record_deferred(&mut encoder)
                } else {
                    open.record(&mut encoder)
                };
                world.optimize(gpu, &mut encoder, 3);
                unlimited.update(&mut encoder, [recorded.unwrap()]).unwrap();
                gpu.queue().submit([encoder.finish()]);
                let verdict = world.verdict(gpu);
                // Where nothing is written, no format overflows: the product is the optimizer's.
                if world.deferred {
                    assert_eq!((verdict.skip, verdict.overflow), (0, 0));
                    continue;
                }
                assert_eq!((verdict.skip, verdict.found_inf, verdict.overflow), (1, 1, 1));
                assert_eq!(world.state(gpu), before);
            }
        }
    }
}
