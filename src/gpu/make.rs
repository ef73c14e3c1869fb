//! Layouts, bind groups and buffers. Called inside [`guarded`](super::guard::guarded).

use super::context::Shared;

/// How a kernel binds a buffer.
#[derive(Clone, Copy)]
pub(crate) enum Binding {
    Read,
    Write,
    Uniform,
    /// At an offset that is told when it is bound.
    DynamicUniform,
    /// No binding of this number.
    Unused,
}

pub(crate) fn layout(device: &wgpu::Device, label: &str, bindings: &[Binding]) -> wgpu::BindGroupLayout {
    let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..)
        .zip(bindings)
        .filter_map(|(binding, kind)| {
            let (ty, has_dynamic_offset) = match kind {
                Binding::Read => (wgpu::BufferBindingType::Storage { read_only: true }, false),
                Binding::Write => (wgpu::BufferBindingType::Storage { read_only: false }, false),
                Binding::Uniform => (wgpu::BufferBindingType::Uniform, false),
                Binding::DynamicUniform => (wgpu::BufferBindingType::Uniform, true),
                Binding::Unused => return None,
            };
            Some(wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
                count: None,
            })
        })
        .collect();
    device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(label), entries: &entries })
}

/// A bind group of these resources, by their numbers.
pub(crate) fn numbered(
    shared: &Shared,
    layout: &wgpu::BindGroupLayout,
    resources: &[(u32, wgpu::BindingResource<'_>)],
) -> wgpu::BindGroup {
    let entries: Vec<wgpu::BindGroupEntry<'_>> = resources
        .iter()
        .map(|(binding, resource)| wgpu::BindGroupEntry { binding: *binding, resource: resource.clone() })
        .collect();
    shared.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("gradclip"),
        layout,
        entries: &entries,
    })
}

/// A bind group of these resources, in order.
pub(crate) fn group(
    shared: &Shared,
    layout: &wgpu::BindGroupLayout,
    resources: &[wgpu::BindingResource<'_>],
) -> wgpu::BindGroup {
    let resources: Vec<_> = (0..).zip(resources.iter().cloned()).collect();
    numbered(shared, layout, &resources)
}

/// A storage buffer of zeros.
pub(crate) fn empty(shared: &Shared, label: &str, size: u64) -> wgpu::Buffer {
    shared.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    })
}

/// A buffer with these bytes.
pub(crate) fn filled(shared: &Shared, label: &str, usage: wgpu::BufferUsages, bytes: &[u8]) -> wgpu::Buffer {
    let buffer = shared.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size: bytes.len() as u64,
        usage,
        mapped_at_creation: true,
    });
    // A buffer that was refused has no range to map; the caller's error scope knows.
    if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
        view.copy_from_slice(bytes);
    }
    buffer.unmap();
    buffer
}

/// A buffer to copy into and to map.
pub(crate) fn staging(device: &wgpu::Device, label: &str, size: u64) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

/// Part of a buffer, as a binding.
pub(crate) fn part(buffer: &wgpu::Buffer, offset: u64, size: u64) -> wgpu::BindingResource<'_> {
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: wgpu::BufferSize::new(size) })
}

/// A uniform buffer that the queue writes.
pub(crate) fn empty_uniform(shared: &Shared, label: &str, size: u64) -> wgpu::Buffer {
    shared.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}
