//! Buffers that wgpu refuses, and a device that is gone. wgpu panics, or takes another buffer, where a buffer
//! comes from another *instance*: its handles carry no sign of that, so nothing can be checked.

use gradclip::{Error, LossScale, wgpu};

use crate::support::{
    Gpu, adapters, build, bytes, clip, each_gpu, encoder, f32s, gpus, limit, upload, whole,
};

/// wgpu's words say what is wrong, ours which tensor.
fn refused(gpu: &Gpu, other: &wgpu::Buffer, reason: &str) {
    let at = adapters::label(&gpu.info);
    let own = upload(gpu, &[3.0, 4.0]);
    let error = build(gpu, &[("wte", whole(&own)), ("lm_head", whole(other))]).unwrap_err();
    assert!(matches!(error, Error::Wgpu { .. }), "{at}: {error:?}");
    let message = error.to_string();
    for part in ["adamw", "lm_head", reason] {
        assert!(message.contains(part), "no \"{part}\" in \"{message}\", {at}");
    }
    assert!(!message.contains("wte"), "{message}, {at}");
    assert_eq!(bytes(gpu, &own), f32s(&[3.0, 4.0]), "{at}");
}

#[test]
fn of_another_adapter() {
    let all = gpus();
    each_gpu(|gpu| {
        for foreign in all.iter().filter(|other| !std::ptr::eq(*other, gpu)) {
            let buffer = upload(foreign, &[6.0, 8.0]);
            refused(gpu, &buffer, "doesn't match Device");
            assert_eq!(bytes(foreign, &buffer), f32s(&[6.0, 8.0]));
        }
    });
}

#[test]
fn of_another_device_of_the_same_adapter() {
    for adapter in adapters::named("all").unwrap() {
        let [gpu, foreign] = [(); 2].map(|()| adapters::open(&adapter).unwrap());
        let buffer = upload(&foreign, &[6.0, 8.0]);
        refused(&gpu, &buffer, "doesn't match Device");
        assert_eq!(bytes(&foreign, &buffer), f32s(&[6.0, 8.0]));
    }
}

#[test]
fn destroyed() {
    each_gpu(|gpu| {
        let buffer = upload(gpu, &[6.0, 8.0]);
        buffer.destroy();
        refused(gpu, &buffer, "has been destroyed");
    });
}

/// A set may be built on a buffer that is still mapped. wgpu refuses the submit, and the report does not
/// pretend.
#[test]
fn mapped() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let device = gpu.context.device();
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("mapped"),
            size: 8,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        buffer.get_mapped_range_mut(..).unwrap().copy_from_slice(&f32s(&[3.0, 4.0]));
        let set = build(gpu, &[("wte", whole(&buffer))]).unwrap();
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let mut encoder = encoder(gpu);
        set.record(&mut encoder, LossScale::ONE, limit(1.0)).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        let error = pollster::block_on(scope.pop()).expect("a mapped buffer was submitted");
        assert!(error.to_string().contains("mapped"), "{error}, {at}");
        assert_eq!(set.read_report().err(), Some(Error::NotRun { set: "adamw".into() }), "{at}");
        buffer.unmap();
        assert_eq!(bytes(gpu, &buffer), f32s(&[3.0, 4.0]), "{at}");
        let report = clip(gpu, &set, 1.0);
        assert_eq!((report.run, report.total_norm), (1, Some(5.0)), "{at}");
        assert_eq!(bytes(gpu, &buffer), f32s(&[0.6, 0.8]), "{at}");
    });
}

/// Neither a panic nor a wait without end: building, recording and reading on a device that is gone.
#[test]
fn of_a_lost_device() {
    for adapter in adapters::named("all").unwrap() {
        let gpu = adapters::open(&adapter).unwrap();
        let at = adapters::label(&gpu.info);
        let buffer = upload(&gpu, &[3.0, 4.0]);
        let set = build(&gpu, &[("wte", whole(&buffer))]).unwrap();
        assert_eq!(clip(&gpu, &set, 1.0).total_norm, Some(5.0));
        gpu.context.device().destroy();
        for max_norm in [1.0, 2.0] {
            let mut encoder = encoder(&gpu);
            // Known parameters need no buffer, new ones do; either way the caller hears of the loss when it
            // reads.
            if let Err(error) = set.record(&mut encoder, LossScale::ONE, limit(max_norm)) {
                assert!(matches!(error, Error::DeviceLost { .. }), "{at}: {error:?}");
            }
            gpu.context.queue().submit([encoder.finish()]);
            let read = set.read_report();
            assert!(matches!(read, Err(Error::DeviceLost { .. })), "{at}: {read:?}");
        }
        let built = build(&gpu, &[("wte", whole(&buffer))]);
        assert!(matches!(built, Err(Error::DeviceLost { .. })), "{at}: {built:?}");
    }
}
