//! Several sets, contexts and threads on one device.

use gradclip::{Context, Error, GradSet, LossScale, Report};

use crate::support::{adapters, build, bytes, clip, each_gpu, encoder, f32s, limit, upload, whole};

#[test]
fn errors_and_sets_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    fn is_an_error<T: std::error::Error + Clone + PartialEq>() {}
    crosses::<Error>();
    crosses::<Context>();
    crosses::<GradSet>();
    crosses::<Report>();
    is_an_error::<Error>();
}

#[test]
fn two_sets_in_one_encoder() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let (a, b) = (upload(gpu, &[3.0, 4.0]), upload(gpu, &[f32::NAN, 8.0]));
        let clone = gpu.context.clone();
        let first = build(gpu, &[("wte", whole(&a))]).unwrap();
        let second = GradSet::builder("muon").tensor("wte", whole(&b)).build(&clone).unwrap();
        drop(clone);
        let mut encoder = encoder(gpu);
        second.record(&mut encoder, LossScale::ONE, limit(1.0)).unwrap();
        first.record(&mut encoder, LossScale::ONE, limit(1.0)).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        assert_eq!(first.read_report().unwrap().total_norm, Some(5.0), "{at}");
        assert!(second.read_report().unwrap().found_inf, "{at}");
        assert_eq!(bytes(gpu, &a), f32s(&[0.6, 0.8]), "{at}");
        assert_eq!(bytes(gpu, &b), f32s(&[f32::NAN, 8.0]), "{at}");
        assert_eq!((first.name(), second.name(), first.elements()), ("adamw", "muon", 2));
    });
}

/// The device outlives the caller's handles to the context, and one set the other.
#[test]
fn a_set_keeps_its_device() {
    each_gpu(|gpu| {
        let context = Context::new(gpu.context.device(), gpu.context.queue()).unwrap();
        let buffer = upload(gpu, &[3.0, 4.0]);
        let set = GradSet::builder("adamw").tensor("wte", whole(&buffer)).build(&context).unwrap();
        drop(GradSet::builder("other").tensor("wte", whole(&buffer)).build(&context).unwrap());
        drop(context);
        assert_eq!(clip(gpu, &set, 1.0).total_norm, Some(5.0), "{}", adapters::label(&gpu.info));
        assert_eq!(bytes(gpu, &buffer), f32s(&[0.6, 0.8]));
    });
}

/// Eight threads, each with an encoder and a scale of its own, on one set.
#[test]
fn threads_record_one_set() {
    each_gpu(|gpu| {
        let buffer = upload(gpu, &[2f32.powi(36)]);
        let set = build(gpu, &[("wte", whole(&buffer))]).unwrap();
        let commands: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..=8)
                .map(|exponent| {
                    let set = &set;
                    scope.spawn(move || {
                        let mut encoder = encoder(gpu);
                        let scale = LossScale::new(2f32.powi(exponent)).unwrap();
                        set.record(&mut encoder, scale, None).unwrap();
                        encoder.finish()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        gpu.context.queue().submit(commands);
        let report = set.read_report().unwrap();
        assert_eq!((report.run, report.total_norm), (8, Some(1.0)), "{}", adapters::label(&gpu.info));
        assert_eq!(bytes(gpu, &buffer), f32s(&[1.0]));
    });
}
