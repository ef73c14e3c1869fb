//! An update has to hear of every optimizer that has a step open.

use gradclip::Error;

use crate::rig::{Optimizer, bits, each, encoder, growing, scaler, submit, take};

#[test]
fn an_optimizer_left_out_is_named() {
    each(|gpu| {
        let names = ["embedding", "body", "head"];
        let optimizers = names.map(|name| Optimizer::new(gpu, name, &[4.0]));
        let scaler = scaler(gpu, growing(4.0));
        for (left, name) in names.iter().enumerate() {
            optimizers.iter().for_each(|o| o.fill(&[4.0]));
            let mut encoder = encoder(gpu);
            let mut steps: Vec<_> = optimizers
                .iter()
                .map(|o| scaler.begin(&o.set).unwrap().unscale().record(&mut encoder).unwrap())
                .collect();
            let out = steps.remove(left);
            let refused = scaler.update(&mut encoder, steps).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!(
                    "optimizer \"{name}\" has an open step: the loss scale stands still until every optimizer of \
                     the scaler was recorded; pass its step to GradScaler::update, or drop it"
                )
            );
            // The one left out is still open, the others were given up.
            for (i, optimizer) in optimizers.iter().enumerate() {
                let open = scaler.begin(&optimizer.set).map(|_| ());
                let want = if i == left { Err(Error::StepOpen { set: names[i].into() }) } else { Ok(()) };
                assert_eq!(open, want);
            }
            submit(gpu, encoder);
            drop(out);
        }
        assert_eq!(scaler.state_dict().unwrap().updates, 0);

        let all: Vec<&Optimizer> = optimizers.iter().collect();
        optimizers.iter().for_each(|o| o.fill(&[4.0]));
        take(gpu, &scaler, &all, None).unwrap();
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.updates, state.stepped), (8.0, 1, 3));
        optimizers.iter().for_each(|o| assert_eq!(o.bits(), bits(&[1.0])));
    });
}

/// An optimizer without a step this time (its gradients are not ready, or it trains every second step) is not missed.
#[test]
fn an_optimizer_without_an_open_step_is_not_missed() {
    each(|gpu| {
        let (a, b) = (Optimizer::new(gpu, "a", &[4.0]), Optimizer::new(gpu, "b", &[8.0]));
        let scaler = scaler(gpu, growing(4.0));
        take(gpu, &scaler, &[&a], None).unwrap();
        assert_eq!(scaler.state_dict().unwrap().scale, 8.0);
        take(gpu, &scaler, &[&b], None).unwrap();
        assert_eq!((a.bits(), b.bits()), (bits(&[1.0]), bits(&[1.0])));
        assert_eq!(scaler.state_dict().unwrap().scale, 16.0);
    });
}
