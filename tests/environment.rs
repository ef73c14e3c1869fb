//! The block for bug reports.

mod common;

use common::{adapters, gpus};
use gradclip::{Context, wgpu};

#[test]
fn it_says_what_the_device_says() {
    for gpu in gpus() {
        let environment = gpu.context.environment();
        let device = gpu.context.device();
        let (info, limits) = (device.adapter_info(), device.limits());
        assert_eq!(environment.version, env!("CARGO_PKG_VERSION"));
        assert_eq!((environment.adapter.as_str(), environment.driver.as_str()), (&*info.name, &*info.driver));
        assert_eq!((environment.vendor, environment.device), (info.vendor, info.device));
        assert_eq!(environment.driver_info, info.driver_info);
        assert_eq!(environment.backend, info.backend.to_string());
        assert_eq!(environment.limits["max_buffer_size"], limits.max_buffer_size);
        assert_eq!(
            environment.limits["max_storage_buffer_binding_size"],
            limits.max_storage_buffer_binding_size
        );
        assert_eq!(environment.features, Vec::<String>::new());
        assert!(!environment.loop_bounds);
        let checked = Context::with_runtime_checks(device, gpu.context.queue()).unwrap();
        assert!(checked.environment().loop_bounds);
    }
}

#[test]
fn a_feature_of_the_device_is_named() {
    let feature = wgpu::Features::TIMESTAMP_QUERY;
    for adapter in adapters::named("all").unwrap().iter().filter(|a| a.features().contains(feature)) {
        let descriptor = wgpu::DeviceDescriptor { required_features: feature, ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
        let environment = Context::new(&device, &queue).unwrap().environment();
        assert!(environment.features.contains(&"TIMESTAMP_QUERY".to_string()), "{environment}");
        assert!(environment.to_string().contains("TIMESTAMP_QUERY"), "{environment}");
    }
}

#[test]
fn the_block_has_a_line_for_each_question() {
    for gpu in gpus() {
        let environment = gpu.context.environment();
        let block = environment.to_string();
        let heads: Vec<&str> = block.lines().map(|line| line.split(' ').next().unwrap()).collect();
        let want = ["gradclip", "adapter:", "driver:", "backend:", "limits:", "features:", "loop", "probe:"];
        assert_eq!(heads, want, "{block}");
        for text in [
            environment.adapter.clone(),
            environment.backend.clone(),
            format!("max_buffer_size {}", environment.limits["max_buffer_size"]),
            format!("gradclip {} on {} {}\n", environment.version, environment.os, environment.arch),
            "features: none\nloop bounds: left out".to_string(),
        ] {
            assert!(block.contains(&text), "\"{text}\" is not in: {block}");
        }
        assert!(block.contains(&gpu.info.driver_info), "{}: {block}", adapters::label(&gpu.info));
    }
}

#[cfg(feature = "serde")]
#[test]
fn it_is_a_serde_type() {
    let environment = gpus()[0].context.environment();
    let json = serde_json::to_value(&environment).unwrap();
    assert_eq!(json["adapter"], environment.adapter);
    assert_eq!(json["limits"]["max_bind_groups"], environment.limits["max_bind_groups"]);
    let test = serde_json::to_value(gpus()[0].context.self_test().unwrap()).unwrap();
    assert!(test["cases"][0]["name"].is_string() && test["cases"][0]["difference"].is_null());
}
