//! The self-test on every adapter, and what its caller notices of it: nothing.

use std::sync::{Arc, Mutex};

use gradclip::{ClipNorm, Context, Error, Format, GradSet, LossScale, TensorSlice, wgpu};

use super::common::runner::{download, upload};
use super::common::{adapters, f32s, gpus};

#[test]
fn it_holds_on_every_adapter_and_again() {
    for gpu in gpus() {
        let label = adapters::label(&gpu.info);
        let test = gpu.context.self_test().unwrap();
        assert!(test.holds(), "{label}: {test}");
        assert_eq!(test.failed().count(), 0);
        let count = |kind: &str| test.cases.iter().filter(|case| case.name.starts_with(kind)).count();
        let way = |end: &str| test.cases.iter().filter(|case| case.name.ends_with(end)).count();
        let (small, quads) = (way(" (in small tiles)"), way(" (in quads)"));
        assert_eq!((count("step: ") - small - quads, count("scale: ")), (82, 11), "{label}");
        assert!(small >= 9 && quads >= 70, "{label}: {small} and {quads}");
        let all = test.cases.len();
        assert_eq!(test.to_string(), format!("gradclip self-test: {all} of {all} cases hold"));
        assert_eq!(gpu.context.self_test().unwrap(), test, "{label}, again");
    }
}

/// So that an engine can turn the measurement off afterwards.
#[test]
fn it_does_not_measure_how_to_cut() {
    for gpu in gpus() {
        let fresh = Context::new(gpu.context.device(), gpu.context.queue()).unwrap();
        assert!(fresh.self_test().unwrap().holds());
        assert_eq!(fresh.environment().probed, None);
    }
}

#[test]
fn it_holds_with_the_least_limits_and_with_runtime_checks() {
    for adapter in adapters::named("all").unwrap() {
        let gpu = adapters::open_with(&adapter, wgpu::Limits::downlevel_defaults()).unwrap();
        let test = gpu.context.self_test().unwrap();
        assert!(test.holds(), "{}: {test}", adapters::label(&gpu.info));
        let checked = Context::with_runtime_checks(gpu.context.device(), gpu.context.queue()).unwrap();
        let test = checked.self_test().unwrap();
        assert!(test.holds(), "{}, checked: {test}", adapters::label(&gpu.info));
    }
}

/// A step that is submitted, and one that is only recorded, around the self-test.
#[test]
fn work_in_flight_is_left_alone() {
    for gpu in gpus() {
        let context = &gpu.context;
        let page = upload(context, &f32s(&[24.0, 32.0]));
        let slice = TensorSlice { buffer: &page, offset: 0, len: 2, format: Format::F32 };
        let set = GradSet::builder("adamw").tensor("weight", slice).build(context).unwrap();
        let record = |scale| {
            let mut encoder = context.device().create_command_encoder(&Default::default());
            let clip = ClipNorm::new(f32::INFINITY).unwrap();
            set.record(&mut encoder, LossScale::new(scale).unwrap(), Some(clip)).unwrap();
            encoder.finish()
        };
        context.queue().submit([record(8.0)]);
        let later = record(0.5);
        assert!(context.self_test().unwrap().holds());
        assert_eq!(download(context, &page).unwrap(), f32s(&[3.0, 4.0]));
        context.queue().submit([later]);
        let report = set.read_report().unwrap();
        assert_eq!((report.run, report.total_norm), (2, Some(10.0)));
        assert_eq!(download(context, &page).unwrap(), f32s(&[6.0, 8.0]));
    }
}

/// From two threads at once, with an error scope and a handler of the caller's in place.
#[test]
fn it_runs_beside_itself_and_no_error_reaches_the_caller() {
    for gpu in adapters::named("all").unwrap().iter().map(|adapter| adapters::open(adapter).unwrap()) {
        let uncaptured = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&uncaptured);
        gpu.context.device().on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            seen.lock().unwrap().push(error.to_string())
        }));
        let scope = gpu.context.device().push_error_scope(wgpu::ErrorFilter::Validation);
        std::thread::scope(|threads| {
            let other = threads.spawn(|| gpu.context.self_test().unwrap());
            assert!(gpu.context.self_test().unwrap().holds());
            assert!(other.join().unwrap().holds());
        });
        assert!(pollster::block_on(scope.pop()).is_none());
        assert!(uncaptured.lock().unwrap().is_empty());
    }
}

#[test]
fn nothing_stays_allocated() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::all();
    let instance = wgpu::Instance::new(descriptor);
    for adapter in pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all())) {
        let gpu = adapters::open(&adapter).unwrap();
        let held = || {
            let hub = instance.generate_report().expect("a native instance").hub;
            let registries = [hub.buffers, hub.bind_groups, hub.command_encoders, hub.command_buffers];
            registries.map(|registry| registry.num_allocated)
        };
        let before = held();
        assert!(gpu.context.self_test().unwrap().holds());
        assert_eq!(held(), before, "{}", adapters::label(&gpu.info));
    }
}

#[test]
fn a_lost_device_is_an_error() {
    for adapter in adapters::named("all").unwrap() {
        let gpu = adapters::open(&adapter).unwrap();
        gpu.context.device().destroy();
        let error = gpu.context.self_test().unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    }
}
