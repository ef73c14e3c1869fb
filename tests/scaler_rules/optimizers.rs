//! One scaler, several optimizers: a verdict each, one update of the scale from all.

use gradclip::{Context, Format, ScalerConfig, ScalerState, SetState};

use crate::rig::{Optimizer, clip, dynamic, each, f16_bytes, f32_bytes, growing, on_reference, scaler, take};

/// What a gradient is meant to do at a scale of a half.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Finite,
    Infinite,
    Overflows,
}

const SCALE: f32 = 0.5;

/// The gradient of optimizer `i`: every norm is another. f32 and f16 take turns.
fn gradient(i: usize, kind: Kind) -> (Format, Vec<u8>) {
    if i.is_multiple_of(2) {
        let first = match kind {
            Kind::Finite => 3.0 + i as f32,
            Kind::Infinite => f32::NEG_INFINITY,
            Kind::Overflows => f32::MAX,
        };
        return (Format::F32, f32_bytes(&[first, 0.1, -7.5]));
    }
    let first = match kind {
        Kind::Finite => 0x4200 + i as u16,
        Kind::Infinite => 0x7e00,
        Kind::Overflows => 0xfbff,
    };
    (Format::F16, f16_bytes(&[first, 0x2e66, 0xc780, 0x0001]))
}

fn optimizer(gpu: &Context, i: usize, (format, bytes): &(Format, Vec<u8>)) -> Optimizer {
    let name = format!("optimizer {i}");
    match format {
        Format::F16 => {
            let bits = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
            Optimizer::f16(gpu, &name, &bits.collect::<Vec<_>>())
        }
        _ => {
            let values = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            Optimizer::new(gpu, &name, &values.collect::<Vec<_>>())
        }
    }
}

/// One update of optimizers of these kinds: every gradient, every verdict and the scale, bit for bit.
fn one_update(gpu: &Context, kinds: &[Kind], max_norm: Option<f32>) {
    let clip = max_norm.and_then(clip);
    let gradients: Vec<_> = kinds.iter().enumerate().map(|(i, &kind)| gradient(i, kind)).collect();
    let optimizers: Vec<_> = gradients.iter().enumerate().map(|(i, g)| optimizer(gpu, i, g)).collect();
    let config = ScalerConfig { backoff_factor: 0.3, growth_factor: 1.7, ..growing(SCALE) };
    let scaler = scaler(gpu, config);
    take(gpu, &scaler, &optimizers.iter().collect::<Vec<_>>(), clip).unwrap();

    let mut want = ScalerState::new(&config);
    let (mut found_inf, mut overflow) = (false, false);
    for (i, (optimizer, (format, before))) in optimizers.iter().zip(&gradients).enumerate() {
        let mut bytes = before.clone();
        let outcome = on_reference(*format, &mut bytes, SCALE, clip);
        let report = optimizer.set.read_report().unwrap();
        let at = format!("optimizer {i} of {kinds:?}");
        assert_eq!(optimizer.bytes(), bytes, "{at}");
        assert_eq!((report.found_inf, report.overflow), (outcome.found_inf, outcome.overflow), "{at}");
        let numbers =
            [report.total_norm, report.coefficient, report.factor].map(|number| number.map(f64::to_bits));
        // Of what was not measured or not done there is no number.
        let measured = !outcome.found_inf || outcome.overflow;
        let wanted = [
            (measured, outcome.total_norm),
            (!outcome.skipped, outcome.coefficient),
            (!outcome.skipped, outcome.factor),
        ]
        .map(|(there, number)| there.then(|| number.to_f64().to_bits()));
        assert_eq!(numbers, wanted, "{at}");
        assert_eq!([report.nonfinite_in("weight")], outcome.nonfinite[..], "{at}");
        let kind = match (outcome.found_inf, outcome.overflow) {
            (false, _) => Kind::Finite,
            (true, false) => Kind::Infinite,
            (true, true) => Kind::Overflows,
        };
        // A limit scales f32::MAX down to where it fits.
        assert!(kind == kinds[i] || max_norm.is_some(), "{at}: {kind:?}");
        assert_eq!(
            bytes == *before,
            kind != Kind::Finite,
            "{at}: a bad set keeps its bytes, a good one steps"
        );
        found_inf |= kind == Kind::Infinite;
        overflow |= kind == Kind::Overflows;
        want.stepped += u32::from(kind == Kind::Finite);
        let mut set = SetState::new(optimizer.set.name(), u32::from(kind == Kind::Finite));
        set.consecutive_skipped = u32::from(kind != Kind::Finite);
        want.sets.push(set);
        want.clipped += u32::from(kind == Kind::Finite && outcome.coefficient != gradclip::R24::ONE);
    }
    gradclip::reference::scale_update(&config, &mut want, found_inf, overflow);
    assert_eq!(scaler.state_dict().unwrap(), want, "{kinds:?}");
}

#[test]
fn two_optimizers_in_every_combination() {
    each(|gpu| {
        for a in [Kind::Finite, Kind::Infinite, Kind::Overflows] {
            for b in [Kind::Finite, Kind::Infinite, Kind::Overflows] {
                one_update(gpu, &[a, b], None);
                one_update(gpu, &[a, b], Some(1.0));
            }
        }
    });
}

#[test]
fn five_optimizers_with_a_bad_one_at_every_place() {
    each(|gpu| {
        one_update(gpu, &[Kind::Finite; 5], None);
        one_update(gpu, &[Kind::Infinite; 5], None);
        for place in 0..5 {
            let mut kinds = [Kind::Finite; 5];
            kinds[place] = Kind::Infinite;
            one_update(gpu, &kinds, Some(1.0));
            kinds[place] = Kind::Overflows;
            one_update(gpu, &kinds, None);
            kinds[(place + 2) % 5] = Kind::Infinite;
            one_update(gpu, &kinds, None);
        }
    });
}

/// However many sets are bad, the scale backs off once.
#[test]
fn several_bad_sets_back_off_once() {
    each(|gpu| {
        let sets = [0, 1, 2].map(|i| Optimizer::new(gpu, &format!("optimizer {i}"), &[f32::NAN]));
        let scaler = scaler(gpu, dynamic(65536.0));
        take(gpu, &scaler, &sets.each_ref(), None).unwrap();
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.updates, state.skipped, state.stepped), (32768.0, 1, 1, 0));
    });
}

/// A bad set of the last update is not remembered by the next.
#[test]
fn a_bad_set_is_forgotten_by_the_next_update() {
    each(|gpu| {
        let (a, b) = (Optimizer::new(gpu, "a", &[f32::NAN]), Optimizer::new(gpu, "b", &[8.0]));
        let scaler = scaler(gpu, growing(8.0));
        take(gpu, &scaler, &[&a, &b], None).unwrap();
        assert_eq!(scaler.state_dict().unwrap().scale, 4.0);
        take(gpu, &scaler, &[&b], None).unwrap();
        assert_eq!(scaler.state_dict().unwrap().scale, 8.0);
        a.fill(&[8.0]);
        take(gpu, &scaler, &[&b, &a], None).unwrap();
        assert_eq!(scaler.state_dict().unwrap().scale, 16.0);
    });
}
