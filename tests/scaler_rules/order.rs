//! Public reports of kind A: in which order, and with which scale.

use gradclip::{Error, Format};

use crate::rig::{
    Optimizer, bits, clip, dynamic, each, encoder, f16_bytes, f32_bytes, growing, norm, on_reference, scaler,
    submit, take,
};

/// pytorch#40907: clipped before unscaling, so that every step was tiny.
#[test]
fn a01_unscales_before_it_clips() {
    each(|gpu| {
        let gradient = [196_608.0, 262_144.0];
        let adamw = Optimizer::new(gpu, "adamw", &gradient);
        take(gpu, &scaler(gpu, dynamic(65536.0)), &[&adamw], clip(1.0)).unwrap();
        assert_eq!(norm(&adamw.set).to_bits(), 5f64.to_bits());
        assert_eq!(adamw.bits(), bits(&[0.6, 0.8]));
        let mut want = f32_bytes(&gradient);
        let _ = on_reference(Format::F32, &mut want, 65536.0, clip(1.0));
        assert_eq!(adamw.bytes(), want);
    });
}

/// pytorch-lightning#9599: the same through a hook, with f16 gradients.
#[test]
fn a02_unscales_before_it_clips_f16() {
    each(|gpu| {
        // 3072 and 4096.
        let adamw = Optimizer::f16(gpu, "adamw", &[0x6a00, 0x6c00]);
        take(gpu, &scaler(gpu, dynamic(1024.0)), &[&adamw], clip(1.0)).unwrap();
        assert_eq!(norm(&adamw.set).to_bits(), 5f64.to_bits());
        assert_eq!(adamw.bytes(), f16_bytes(&[0x38cd, 0x3a66]));
    });
}

/// DeepSpeed#8588: the scale grew before unscale read it.
#[test]
fn a04_unscales_by_the_scale_of_backward() {
    each(|gpu| {
        let (a, b) = (Optimizer::new(gpu, "a", &[4.0]), Optimizer::new(gpu, "b", &[4.0]));
        let scaler = scaler(gpu, growing(4.0));
        // While the step of `a` is open, `b` cannot make the scale grow.
        let open = scaler.begin(&a.set).unwrap();
        let mut first = encoder(gpu);
        let of_b = scaler.begin(&b.set).unwrap().unscale().record(&mut first).unwrap();
        let refused = scaler.update(&mut first, [of_b]);
        assert_eq!(refused, Err(Error::LeftOut { set: "a".into() }));
        submit(gpu, first);
        assert_eq!(scaler.state_dict().unwrap().scale, 4.0);
        assert_eq!(scaler.state_dict().unwrap().updates, 0);

        let mut second = encoder(gpu);
        let of_a = open.unscale().record(&mut second).unwrap();
        scaler.update(&mut second, [of_a]).unwrap();
        submit(gpu, second);
        assert_eq!(scaler.state_dict().unwrap().scale, 8.0);
        let report = a.set.read_report().unwrap();
        assert_eq!((report.scale, report.total_norm), (4.0, Some(1.0)));
        assert_eq!((a.bits(), b.bits()), (bits(&[1.0]), bits(&[1.0])));

        // The next backward saw 8, and so does the next unscale.
        a.fill(&[8.0]);
        take(gpu, &scaler, &[&a], None).unwrap();
        let report = a.set.read_report().unwrap();
        assert_eq!((report.scale, report.total_norm), (8.0, Some(1.0)));
        assert_eq!(a.bits(), bits(&[1.0]));
    });
}

/// The same with both optimizers' updates and the next step in one submission: the order on the encoder decides.
#[test]
fn a04_holds_within_one_submission() {
    each(|gpu| {
        let a = Optimizer::new(gpu, "a", &[4.0]);
        let b = Optimizer::new(gpu, "b", &[8.0]);
        let scaler = scaler(gpu, growing(4.0));
        let mut encoder = encoder(gpu);
        crate::rig::record(&mut encoder, &scaler, &[&a], None).unwrap();
        crate::rig::record(&mut encoder, &scaler, &[&b], None).unwrap();
        submit(gpu, encoder);
        assert_eq!((a.bits(), b.bits()), (bits(&[1.0]), bits(&[1.0])));
        assert_eq!(scaler.state_dict().unwrap().scale, 16.0);
    });
}

/// espnet#2362: a step skipped for inf never reached the update, and the next unscale was refused.
#[test]
fn a06_a_step_that_was_given_up_does_not_block_the_next() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[f32::INFINITY]);
        let scaler = scaler(gpu, dynamic(2.0));
        let mut first = encoder(gpu);
        let step = scaler.begin(&adamw.set).unwrap().unscale().record(&mut first).unwrap();
        submit(gpu, first);
        assert!(adamw.set.read_report().unwrap().found_inf);

        // A second unscale of the same step is an error and changes nothing.
        let again = scaler.begin(&adamw.set).map(|_| ());
        assert_eq!(again, Err(Error::StepOpen { set: "adamw".into() }));
        assert_eq!(adamw.bits(), bits(&[f32::INFINITY]));

        drop(step);
        adamw.fill(&[2.0]);
        take(gpu, &scaler, &[&adamw], None).unwrap();
        assert_eq!(adamw.bits(), bits(&[1.0]));
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.scale, state.updates, state.skipped, state.stepped), (2.0, 1, 0, 1));
    });
}

/// A step dropped without recording, at each stage: the set is usable again, and nothing of it counts.
#[test]
fn a07_a_step_dropped_at_any_stage_leaves_the_set_usable() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[6.0, 8.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        let clip = clip(1.0).unwrap();
        drop(scaler.begin(&adamw.set).unwrap());
        let mut counted = scaler.begin(&adamw.set).unwrap();
        counted.microbatch();
        drop(counted);
        drop(scaler.begin(&adamw.set).unwrap().unscale());
        drop(scaler.begin(&adamw.set).unwrap().unscale().limit(clip));
        // Recorded, and the encoder dropped too: the commands never run.
        let mut unused = encoder(gpu);
        drop(scaler.begin(&adamw.set).unwrap().unscale().record(&mut unused).unwrap());
        drop(scaler.begin(&adamw.set).unwrap().unscale().limit(clip).record(&mut unused).unwrap());
        drop(scaler.begin(&adamw.set).unwrap().unscale().record_deferred(&mut unused).unwrap());
        drop(unused);
        assert_eq!(scaler.state_dict().unwrap().updates, 0);
        assert_eq!(adamw.bits(), bits(&[6.0, 8.0]));

        take(gpu, &scaler, &[&adamw], Some(clip)).unwrap();
        assert_eq!(norm(&adamw.set), 5.0);
        assert_eq!(adamw.bits(), bits(&[0.6, 0.8]));
        let state = scaler.state_dict().unwrap();
        assert_eq!((state.updates, state.stepped, state.clipped, state.missed), (1, 1, 1, 0));
    });
}

/// The scale is frozen by the first open step, whatever the number of microbatches; the report counts them.
#[test]
fn a_scale_stands_still_over_an_accumulation_window() {
    each(|gpu| {
        let a = Optimizer::new(gpu, "a", &[12.0]);
        let scaler = scaler(gpu, growing(4.0)).with_reports(1);
        let mut open = scaler.begin(&a.set).unwrap();
        for _ in 0..3 {
            assert_eq!(scaler.state_dict().unwrap().scale, 4.0);
            open.microbatch();
        }
        let mut encoder = encoder(gpu);
        let step = open.unscale().record(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
        submit(gpu, encoder);
        let report = scaler.wait_report(crate::submission::PATIENCE).unwrap().unwrap();
        assert_eq!((report.steps[0].microbatches, report.steps[0].report.scale), (3, 4.0));
        assert_eq!(report.scaler.scale, 8.0);
        assert_eq!(a.bits(), bits(&[3.0]));
    });
}
