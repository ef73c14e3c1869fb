//! What types cannot see is a typed error, in the words of the field.

use gradclip::{Context, Error, LossScale, ScalerConfig, ScalerState};

use crate::rig::{Optimizer, after, bits, dynamic, each, encoder, only_set, scaler, submit, take};

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn begin_while_a_step_of_the_set_is_open() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        let open = scaler.begin(&adamw.set).unwrap();
        assert_eq!(
            text(scaler.begin(&adamw.set)),
            "set \"adamw\" has an open step: its gradients are unscaled once per update; pass the open step to \
             GradScaler::update, or drop it, first"
        );
        // The refusal left the open step as it was.
        let mut encoder = encoder(gpu);
        let step = open.unscale().record(&mut encoder).unwrap();
        assert!(matches!(scaler.begin(&adamw.set), Err(Error::StepOpen { .. })));
        scaler.update(&mut encoder, [step]).unwrap();
        assert!(scaler.begin(&adamw.set).is_ok(), "the update closed it");
        submit(gpu, encoder);
        assert_eq!(adamw.bits(), bits(&[1.0]));
    });
}

/// A step of its own beside the open one would divide the scale out twice.
#[test]
fn a_step_beside_the_open_one_is_refused() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        let open = scaler.begin(&adamw.set).unwrap();
        let mut encoder = encoder(gpu);
        let refused = |result: Result<(), Error>| assert!(matches!(result, Err(Error::StepOpen { .. })));
        refused(adamw.set.record(&mut encoder, LossScale::ONE, None));
        refused(adamw.set.record_deferred(&mut encoder, LossScale::ONE, None));
        let step = open.unscale().record(&mut encoder).unwrap();
        refused(adamw.set.record(&mut encoder, LossScale::ONE, None));
        scaler.update(&mut encoder, [step]).unwrap();
        adamw.set.record(&mut encoder, LossScale::new(4.0).unwrap(), None).unwrap();
        submit(gpu, encoder);
        assert_eq!(adamw.bits(), bits(&[0.25]), "2 / 2, then / 4");
    });
}

/// What 2^32 updates would do: the counts stop, and the state can be loaded again.
#[test]
fn counts_stop_at_the_largest_number() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[1.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        let full = ScalerState {
            skipped: u32::MAX,
            updates: u32::MAX,
            stepped: u32::MAX,
            ..ScalerState::new(scaler.config())
        };
        scaler.load_state_dict(&full).unwrap();
        for gradient in [f32::NAN, 1.0] {
            let state = after(gpu, &scaler, &adamw, gradient);
            assert_eq!((state.skipped, state.updates, state.stepped), (u32::MAX, u32::MAX, u32::MAX));
            scaler.load_state_dict(&state).unwrap();
        }
    });
}

#[test]
fn a_set_that_is_open_under_another_scaler() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let (one, two) = (scaler(gpu, dynamic(2.0)), scaler(gpu, dynamic(4.0)));
        let open = one.begin(&adamw.set).unwrap();
        let message = "set \"adamw\" has a step under another GradScaler; an optimizer belongs to the scaler whose \
                       scale multiplied its loss";
        assert_eq!(text(two.begin(&adamw.set)), message);

        // The other scaler refuses its recorded step too, and moves neither scale.
        let mut encoder = encoder(gpu);
        let step = open.unscale().record(&mut encoder).unwrap();
        assert_eq!(text(two.update(&mut encoder, [step])), message);
        submit(gpu, encoder);
        assert_eq!((one.state_dict().unwrap().updates, two.state_dict().unwrap().updates), (0, 0));

        // The refused step was given up, so that the set is free for either.
        adamw.fill(&[4.0]);
        take(gpu, &two, &[&adamw], None).unwrap();
        assert_eq!(adamw.bits(), bits(&[1.0]));
        assert_eq!(two.state_dict().unwrap().updates, 1);
    });
}

#[test]
fn two_contexts_mixed() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let other = Context::new(gpu.device(), gpu.queue()).unwrap();
        assert_eq!(
            text(scaler(&other, dynamic(2.0)).begin(&adamw.set)),
            "set \"adamw\" was built with another Context than this GradScaler; build both with one Context"
        );
        assert!(scaler(&gpu.clone(), dynamic(2.0)).begin(&adamw.set).is_ok(), "a clone is the same context");
    });
}

#[test]
fn an_update_without_steps() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        let mut encoder = encoder(gpu);
        let message = "GradScaler::update needs the recorded step of every optimizer; without one there is nothing to update from";
        assert_eq!(text(scaler.update(&mut encoder, [])), message);
        let open = scaler.begin(&adamw.set).unwrap();
        assert_eq!(text(scaler.update(&mut encoder, [])), message);
        drop(open);
        submit(gpu, encoder);
        let start = ScalerState::new(scaler.config());
        let start = ScalerState { sets: only_set("adamw", &start), ..start };
        assert_eq!(scaler.state_dict().unwrap(), start);
    });
}

#[test]
fn a_load_while_a_step_is_open() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        let open = scaler.begin(&adamw.set).unwrap();
        let loaded = ScalerState { scale: 16.0, ..ScalerState::new(scaler.config()) };
        assert_eq!(scaler.load_state_dict(&loaded), Err(Error::LeftOut { set: "adamw".into() }));
        assert_eq!(scaler.state_dict().unwrap().scale, 2.0);
        drop(open);
        scaler.load_state_dict(&loaded).unwrap();
        assert_eq!(scaler.state_dict().unwrap().scale, 16.0);
        assert_eq!(after(gpu, &scaler, &adamw, 16.0).updates, 1);
        assert_eq!(adamw.bits(), bits(&[1.0]));
    });
}

#[test]
fn a_configuration_outside_its_domain_never_reaches_the_gpu() {
    let config = ScalerConfig { growth_factor: 1.0, ..ScalerConfig::default() };
    each(|gpu| {
        let refused = gradclip::GradScaler::new(gpu, config);
        assert_eq!(text(refused.map(|_| ())), "growth_factor 1 must be above 1 and finite");
    });
}
