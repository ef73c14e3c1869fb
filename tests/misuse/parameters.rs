//! Domains of scale, limit and eps.

use gradclip::{ClipNorm, LossScale};

#[test]
fn loss_scale() {
    for (scale, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (-1.0, "-1"),
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
        (f32::NAN, "NaN"),
    ] {
        let message =
            format!("loss scale {text} must be positive and finite; 1 means that the loss was not scaled");
        assert_eq!(LossScale::new(scale).unwrap_err().to_string(), message);
    }
}

#[test]
fn max_norm() {
    for (max_norm, text) in [(-1.0, "-1"), (f32::NEG_INFINITY, "-inf"), (f32::NAN, "NaN")] {
        let message = format!("max_norm {text} must be 0 or more; f32::INFINITY means no limit");
        assert_eq!(ClipNorm::new(max_norm).unwrap_err().to_string(), message);
    }
}

#[test]
fn eps() {
    for (eps, text) in [(-1.0, "-1"), (f32::INFINITY, "inf"), (f32::NAN, "NaN")] {
        let error = ClipNorm::new(1.0).unwrap().with_eps(eps).unwrap_err();
        assert_eq!(error.to_string(), format!("eps {text} must be 0 or more and finite"));
    }
}
