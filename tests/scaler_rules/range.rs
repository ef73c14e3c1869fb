//! Public reports of kind F: how far the loss scale may go, and what it does to the gradients there.

use gradclip::{Error, GradScaler, HysteresisRefill, LossScale, ScalerConfig};

use crate::rig::{Optimizer, after, bits, clip, dynamic, each, growing, norm, scaler, take};

const LARGEST_SCALE: f32 = f32::from_bits(0x7f00_0000);

/// pytorch#98828: growth carried the scale to infinity.
#[test]
fn f01_growth_stops_at_the_largest_power_of_two() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[1.0]);
        let largest = scaler(gpu, growing(LARGEST_SCALE));
        for updates in 1..=3 {
            let state = after(gpu, &largest, &adamw, 1.0);
            assert_eq!((state.scale.to_bits(), state.updates), (0x7f00_0000, updates));
        }
        // One step below, with a factor that would jump past it.
        let config = ScalerConfig { growth_factor: 2.5, ..growing(LARGEST_SCALE / 2.0) };
        assert_eq!(after(gpu, &scaler(gpu, config), &adamw, 1.0).scale, LARGEST_SCALE / 2.0);
    });
}

/// The reciprocal of 2^127 is subnormal: a GPU may flush it, and WGSL promises nothing for such a division.
#[test]
fn f02_unscales_by_the_largest_scale() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[LARGEST_SCALE]);
        take(gpu, &scaler(gpu, dynamic(LARGEST_SCALE)), &[&adamw], None).unwrap();
        assert_eq!(norm(&adamw.set).to_bits(), 1f64.to_bits());
        assert_eq!(adamw.bits(), bits(&[1.0]));
    });
}

/// apex#715: repeated overflow took the scale to 0, and 0 times infinity is NaN.
#[test]
fn f03_backing_off_ends_at_a_floor_above_zero() {
    for scale in [0.0, f32::from_bits(1)] {
        let config = ScalerConfig { init_scale: scale, ..ScalerConfig::default() };
        assert!(matches!(config.check(), Err(Error::Config { field: "init_scale", .. })));
    }
    assert!(matches!(LossScale::new(0.0), Err(Error::LossScale(_))));
    each(|gpu| {
        assert!(GradScaler::new(gpu, ScalerConfig { init_scale: 0.0, ..Default::default() }).is_err());
        let adamw = Optimizer::new(gpu, "adamw", &[f32::NAN]);
        let scaler = scaler(gpu, dynamic(2f32.powi(-120)));
        for _ in 0..10 {
            take(gpu, &scaler, &[&adamw], None).unwrap();
        }
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.skipped), (f32::MIN_POSITIVE, 10));
        // At the floor, finite gradients are still finite, and zero stays zero.
        let two = Optimizer::new(gpu, "two", &[0.0, 1.0]);
        take(gpu, &scaler, &[&two], None).unwrap();
        let report = two.set.read_report().unwrap();
        assert!(!report.found_inf);
        assert_eq!(report.total_norm.unwrap().to_bits(), 2f64.powi(126).to_bits());
        assert_eq!(two.bits(), bits(&[0.0, 2f32.powi(126)]));
    });
}

/// The floor of the configuration holds too, for a factor that would land below it.
#[test]
fn f03_backing_off_ends_at_min_scale() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[f32::INFINITY]);
        let config = ScalerConfig { min_scale: 3.0, backoff_factor: 0.3, ..dynamic(16.0) };
        let scaler = scaler(gpu, config);
        let scales = [(); 3].map(|()| after(gpu, &scaler, &adamw, f32::INFINITY).scale);
        assert_eq!(scales, [4.8, 3.0, 3.0]);
    });
}

/// DeepSpeed#3553: whether a finite step refills the hysteresis.
#[test]
fn f06_hysteresis_is_refilled_by_growth_or_by_every_finite_step() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[1.0]);
        for (refill, scale) in
            [(HysteresisRefill::OnFiniteStep, 65536.0), (HysteresisRefill::OnGrowth, 32768.0)]
        {
            let config = ScalerConfig { hysteresis: 2, refill, ..ScalerConfig::default() };
            let scaler = scaler(gpu, config);
            assert_eq!(after(gpu, &scaler, &adamw, f32::INFINITY).scale, 65536.0);
            assert_eq!(after(gpu, &scaler, &adamw, 1.0).scale, 65536.0);
            assert_eq!(after(gpu, &scaler, &adamw, f32::INFINITY).scale, scale, "{refill:?}");
        }
    });
}

/// onnxruntime#6289: the limit was compared in the scaled domain, where limit x scale is infinite.
#[test]
fn f08_the_limit_is_not_multiplied_by_the_scale() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2f32.powi(126)]);
        take(gpu, &scaler(gpu, dynamic(2f32.powi(126))), &[&adamw], clip(8.0)).unwrap();
        let report = adamw.set.read_report().unwrap();
        assert_eq!((report.total_norm, report.coefficient, report.clipped), (Some(1.0), Some(1.0), false));
        assert_eq!(adamw.bits(), bits(&[1.0]));
    });
}
