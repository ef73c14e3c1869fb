//! One device for Burn and gradclip.

use burn::tensor::Device;
use burn::tensor::wgpu::WgpuSetup;
use gradclip::{Context, wgpu};

use super::adapters;

/// Burn's device, with autodiff, and gradclip's context on the same wgpu device and queue.
#[derive(Clone)]
pub struct Gpu {
    pub device: Device,
    pub context: Context,
    pub name: String,
}

/// The best adapter whose description contains `name`; "all": of all.
pub fn adapter(name: &str) -> Result<wgpu::Adapter, String> {
    adapters::named(name)?.into_iter().min_by_key(rank).ok_or_else(|| adapters::NO_ADAPTER.into())
}

/// A new device on an adapter, for both.
pub fn open(adapter: &wgpu::Adapter) -> Result<Gpu, String> {
    // Burn compiles for whatever the device offers. What is left out would need unsafe code, or make wgpu warn.
    let features = adapter.features()
        - wgpu::Features::all_experimental_mask()
        - wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
    let descriptor = wgpu::DeviceDescriptor {
        required_features: features,
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let gpu = adapters::open_device(adapter, &descriptor)?;
    let setup = WgpuSetup {
        instance: wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle()),
        adapter: adapter.clone(),
        device: gpu.context.device().clone(),
        queue: gpu.context.queue().clone(),
        backend: gpu.info.backend,
    };
    let device = Device::wgpu_options().setup(setup).init().map_err(|e| e.to_string())?;
    Ok(Gpu { device: device.autodiff(), context: gpu.context, name: adapters::label(&gpu.info) })
}

/// A real GPU before a software one, Vulkan, Metal or DX12 before GL, and the slowest of the software ones last.
fn rank(adapter: &wgpu::Adapter) -> (u8, bool, bool) {
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
    let info = adapter.get_info();
    let kind = match info.device_type {
        DiscreteGpu => 0,
        IntegratedGpu => 1,
        VirtualGpu => 2,
        Other => 3,
        Cpu => 4,
    };
    (kind, info.backend == wgpu::Backend::Gl, info.name.starts_with("SwiftShader"))
}
