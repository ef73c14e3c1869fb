//! The adapters of this machine.

use gradclip::{Context, wgpu};

/// What to install where there is none.
pub const NO_ADAPTER: &str = "no GPU adapter found; on Debian or Ubuntu `apt-get install mesa-vulkan-drivers` brings a \
    software one (lavapipe), elsewhere install your GPU's Vulkan, Metal or DX12 driver";

/// An adapter with a device and gradclip's kernels on it.
pub struct Gpu {
    pub info: wgpu::AdapterInfo,
    pub context: Context,
}

/// Name, driver and backend, as `--adapter` takes them.
pub fn label(info: &wgpu::AdapterInfo) -> String {
    format!("{} [{} {}] ({})", info.name, info.driver, info.driver_info, info.backend)
}

/// Every adapter of every backend.
pub fn all() -> Vec<wgpu::Adapter> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::all();
    let instance = wgpu::Instance::new(descriptor);
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
}

/// The adapters whose label contains `name`, whatever the case; "all": every one.
pub fn named(name: &str) -> Result<Vec<wgpu::Adapter>, String> {
    let adapters = all();
    if adapters.is_empty() {
        return Err(NO_ADAPTER.into());
    }
    let present: Vec<String> = adapters.iter().map(|a| label(&a.get_info())).collect();
    let wanted = name.to_lowercase();
    let chosen: Vec<wgpu::Adapter> = adapters
        .into_iter()
        .filter(|a| name == "all" || label(&a.get_info()).to_lowercase().contains(&wanted))
        .collect();
    if chosen.is_empty() {
        return Err(format!("no adapter named \"{name}\"; present: {}", present.join(", ")));
    }
    Ok(chosen)
}

/// Opens a device with all that the adapter offers.
pub fn open(adapter: &wgpu::Adapter) -> Result<Gpu, String> {
    open_with(adapter, adapter.limits())
}

/// Opens a device with limits of the caller's choice.
pub fn open_with(adapter: &wgpu::Adapter, limits: wgpu::Limits) -> Result<Gpu, String> {
    open_device(adapter, &wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() })
}

/// Opens a device as described.
pub fn open_device(adapter: &wgpu::Adapter, device: &wgpu::DeviceDescriptor<'_>) -> Result<Gpu, String> {
    let info = adapter.get_info();
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", label(&info));
    let (device, queue) = pollster::block_on(adapter.request_device(device)).map_err(|e| at(&e))?;
    let context = Context::new(&device, &queue).map_err(|e| at(&e))?;
    Ok(Gpu { info, context })
}
