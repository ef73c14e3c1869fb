//! Each part has a scaler of its own, and all keep one scale.

use gradclip::reference::TensorBits;
use gradclip::{
    ClipNorm, Error, Format, GradScaler, Ledger, LossScale, ScalerConfig, ScalerState, reference,
};

use crate::common::{f32s, gpus};
use crate::parts::{Part, Tensors, merge};

fn config() -> ScalerConfig {
    ScalerConfig { init_scale: 1024.0, growth_interval: 2, skip_above: Some(1e6), ..ScalerConfig::default() }
}

/// Gradients of three parts for each step; the scale is not in them.
const STEPS: [[&[f32]; 3]; 7] = [
    [&[3.0, 1.0], &[4.0], &[]],
    [&[0.5], &[0.25, 1e-6], &[1e-3]],
    [&[1.0], &[f32::NAN], &[2.0]],
    [&[1.0], &[2.0], &[2.0]],
    [&[1e6], &[2e6], &[2.0]],
    [&[f32::INFINITY], &[2.0], &[f32::NEG_INFINITY]],
    [&[1e-3], &[2.0, 2.0, 2.0], &[7.0]],
];

fn tensors(values: &[f32]) -> Tensors {
    vec![(Format::F32, f32s(values))]
}

#[test]
fn the_scalers_of_all_parts_agree_with_that_of_the_whole() {
    let gpus = gpus();
    let clip = ClipNorm::new(1.0).unwrap();
    let on = |i: usize| &gpus[i % gpus.len()].context;
    let scalers: Vec<GradScaler> = (0..3).map(|i| GradScaler::new(on(i), config()).unwrap()).collect();
    let whole = GradScaler::new(on(0), config()).unwrap();
    let mut scale = 1024.0;
    for step in STEPS {
        let scaled = step.map(|part| part.iter().map(|v| v * scale).collect::<Vec<f32>>());
        let all: Vec<f32> = scaled.concat();
        let set = Part::new(on(0), &tensors(&all));
        set.submit(|encoder| {
            let step = whole.begin(&set.set).unwrap().unscale().limit(clip);
            let step = step.record(encoder).unwrap();
            whole.update(encoder, [step]).unwrap();
        });
        let parts: Vec<Part> = (0..3).map(|i| Part::new(on(i), &tensors(&scaled[i]))).collect();
        let halves: Vec<_> = parts
            .iter()
            .zip(&scalers)
            .map(|(part, scaler)| {
                let step = scaler.begin(&part.set).unwrap().unscale().limit(clip);
                part.submit(|encoder| step.record_ledger(encoder)).unwrap()
            })
            .collect();
        let ledgers: Vec<Ledger> = halves.iter().map(|half| half.read_ledger().unwrap()).collect();
        let merged = merge(&ledgers);
        assert_eq!(merged.scale(), scale);
        for ((half, part), scaler) in halves.into_iter().zip(&parts).zip(&scalers) {
            part.submit(|encoder| {
                let step = half.record(encoder, &merged).unwrap();
                scaler.update(encoder, [step]).unwrap();
            });
        }
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes().concat()).collect();
        assert_eq!(bytes, set.bytes().concat(), "{step:?}");
        let want: ScalerState = whole.state_dict().unwrap();
        for scaler in &scalers {
            assert_eq!(scaler.state_dict().unwrap(), want, "{step:?}");
        }
        scale = want.scale;
    }
    let end = whole.state_dict().unwrap();
    assert_eq!((end.skipped, end.above), (3, 1), "{end:?}");
}

/// `skip_above` is that of the whole norm, which no part sees by itself.
#[test]
fn what_a_part_cannot_see_counts() {
    for gpu in gpus() {
        let config = ScalerConfig { init_scale: 1.0, skip_above: Some(6.0), ..ScalerConfig::default() };
        let scaler = GradScaler::new(&gpu.context, config).unwrap();
        let part = Part::new(&gpu.context, &tensors(&[3.0]));
        let half = part.submit(|e| scaler.begin(&part.set).unwrap().unscale().record_ledger(e)).unwrap();
        let mut bytes = f32s(&[4.0, 12.0]);
        let other = [TensorBits::new(Format::F32, &mut bytes)];
        let limit = gradclip::Limit::none().skip_above(6.0);
        let other = reference::ledger(&other, LossScale::ONE, limit).unwrap();
        let merged = merge(&[half.read_ledger().unwrap(), other]);
        part.submit(|encoder| {
            let step = half.record(encoder, &merged).unwrap();
            scaler.update(encoder, [step]).unwrap();
        });
        let report = part.set.read_report().unwrap();
        assert!(report.above && report.skipped);
        assert_eq!(report.total_norm, Some(13.0));
        assert_eq!(part.bytes().concat(), f32s(&[3.0]));
    }
}

#[test]
fn a_half_can_be_given_up() {
    for gpu in gpus() {
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::default()).unwrap();
        let part = Part::new(&gpu.context, &tensors(&[3.0, 4.0]));
        let begin = || scaler.begin(&part.set).map(|step| step.unscale());
        let half = part.submit(|e| begin().unwrap().record_ledger(e)).unwrap();
        assert!(matches!(begin(), Err(Error::StepOpen { .. })));
        let own = half.read_ledger().unwrap();
        drop(half);
        // What it measured is not for the next.
        let late = part.submit(|encoder| part.set.record_merged(encoder, &own));
        assert!(matches!(late, Err(Error::NoLedger { .. })), "{late:?}");

        let half = part.submit(|e| begin().unwrap().record_ledger(e)).unwrap();
        let foreign = reference::ledger(&[], LossScale::ONE, None).unwrap();
        half.read_ledger().unwrap();
        let refused = part.submit(|encoder| half.record(encoder, &foreign).map(drop));
        assert!(matches!(refused, Err(Error::Ledger { .. })), "{refused:?}");
        assert_eq!(part.bytes().concat(), f32s(&[3.0, 4.0]));
        drop(begin().unwrap());
    }
}
