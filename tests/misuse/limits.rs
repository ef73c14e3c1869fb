//! Limits of a plan and of a device that leave no room.

use gradclip::plan::PlanLimits;
use gradclip::{Context, Error, GradSet, wgpu};

use crate::support::{adapters, bytes, clip, each_gpu, f32s, upload, whole};

/// What the message says, and the change that it is about.
type Change<T> = (&'static str, fn(&mut T));

#[test]
fn zero_capacity() {
    let changes: [Change<PlanLimits>; 5] = [
        ("window_bytes", |l| l.window_bytes = 0),
        ("windows_per_dispatch", |l| l.windows_per_dispatch = 0),
        ("groups_per_dimension", |l| l.groups_per_dimension = 0),
        ("elements_per_dispatch", |l| l.elements_per_dispatch = 0),
        ("tile_words", |l| l.tile_words = 0),
    ];
    each_gpu(|gpu| {
        let buffer = upload(gpu, &[3.0, 4.0]);
        for (name, change) in changes {
            let mut limits = PlanLimits::from_device(gpu.context.device());
            change(&mut limits);
            let builder = GradSet::builder("adamw").tensor("wte", whole(&buffer)).plan_limits(limits);
            let error = builder.build(&gpu.context).unwrap_err();
            let message = format!(
                "PlanLimits::{name} leaves room for nothing; raise it (window_bytes: to one window_align at least)"
            );
            assert_eq!(error.to_string(), message, "{}", adapters::label(&gpu.info));
        }
        // Less than one aligned unit is as good as nothing.
        let mut limits = PlanLimits::from_device(gpu.context.device());
        limits.window_bytes = limits.window_align - 1;
        let builder = GradSet::builder("adamw").tensor("wte", whole(&buffer)).plan_limits(limits);
        assert_eq!(builder.build(&gpu.context).err(), Some(Error::ZeroLimit { limit: "window_bytes" }));
        assert_eq!(bytes(gpu, &buffer), f32s(&[3.0, 4.0]));
    });
}

/// Larger than the device allows: cut down to that, as `plan_limits` only makes pieces smaller.
#[test]
fn more_than_the_device_has_is_cut_down() {
    each_gpu(|gpu| {
        let buffer = upload(gpu, &[3.0, 4.0]);
        let mut limits = PlanLimits::from_device(gpu.context.device());
        limits.window_bytes = u64::MAX;
        limits.window_align = 1;
        limits.windows_per_dispatch = u32::MAX;
        limits.groups_per_dimension = u32::MAX;
        limits.elements_per_dispatch = u64::MAX;
        limits.tile_words = u32::MAX;
        limits.lone_window_tiles = u64::MAX;
        let builder = GradSet::builder("adamw").tensor("wte", whole(&buffer)).plan_limits(limits);
        let set = builder.build(&gpu.context).unwrap();
        assert_eq!(clip(gpu, &set, 1.0).total_norm, Some(5.0));
        assert_eq!(bytes(gpu, &buffer), f32s(&[0.6, 0.8]), "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn a_device_made_with_too_little() {
    let changes: [Change<wgpu::Limits>; 4] = [
        ("max_storage_buffers_per_shader_stage is 3, but gradclip needs 4", |l| {
            l.max_storage_buffers_per_shader_stage = 3;
        }),
        ("max_compute_invocations_per_workgroup is 128, but gradclip needs 256", |l| {
            l.max_compute_invocations_per_workgroup = 128;
        }),
        ("max_compute_workgroup_size_x is 64, but gradclip needs 256", |l| {
            l.max_compute_workgroup_size_x = 64
        }),
        ("max_uniform_buffers_per_shader_stage is 2, but gradclip needs 3", |l| {
            l.max_uniform_buffers_per_shader_stage = 2;
        }),
    ];
    for adapter in adapters::named("all").unwrap() {
        for (what, change) in changes {
            let mut limits = adapter.limits();
            change(&mut limits);
            let (device, queue) =
                pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                    required_limits: limits,
                    ..Default::default()
                }))
                .unwrap();
            let error = Context::new(&device, &queue).unwrap_err();
            assert!(matches!(error, Error::DeviceLimit { .. }));
            assert_eq!(error.to_string(), format!("the device's {what}; request a device with more"));
        }
    }
}

#[test]
fn scratch_that_does_not_fit() {
    let error = Error::Scratch { set: "adamw".into(), what: "partials", bytes: 9, limit: 8 };
    assert_eq!(
        error.to_string(),
        "set \"adamw\" needs 9 bytes of partials, but the device allows 8 a buffer; raise the device's limits or \
         PlanLimits::tile_words, or use several sets"
    );
    let error = Error::TooManyTiles { tile_words: 1 };
    assert_eq!(error.to_string(), "more than 2^32 - 1 tiles of 1 words; raise PlanLimits::tile_words");
}
