//! The buffers that a plan needs, beside the gradients and what a set keeps.

use super::bound::padded;
use super::context::Shared;
use super::guard::guarded;
use super::make::{empty, filled};
use crate::Error;
use crate::plan::{CLASSES, PARTIAL_BYTES, Plan};

/// Uniform slots and spare windows are this far apart: WebGPU's largest alignment.
pub(crate) const STRIDE: u64 = 256;

/// The twin of `struct Dispatch` in `tile.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct DispatchUniform {
    first_tile: u32,
    tile_count: u32,
    tile_words: u32,
    tiles_at: u32,
    zero: u32,
}

/// The twin of `struct Finish` in `classes.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct FinishUniform {
    tile_count: u32,
    tensor_count: u32,
    tiles_at: u32,
    tile_words: u32,
    class_starts: [u32; CLASSES - 1],
}

/// The buffers of a plan.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub table: wgpu::Buffer,
    pub partials: wgpu::Buffer,
    /// One slot for norm_finish, then one a dispatch.
    uniforms: wgpu::Buffer,
    /// Stands in for windows that a dispatch does not use.
    pub spare: wgpu::Buffer,
}

impl Scratch {
    pub fn new(shared: &Shared, set: &str, plan: &Plan, tensors: usize) -> Result<Self, Error> {
        let limits = shared.device.limits();
        let table = plan.table();
        let partial_bytes = u64::from(plan.tiles.max(1)) * PARTIAL_BYTES;
        let uniforms = uniform_bytes(plan, tensors);
        let binding = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
        for (what, bytes, limit) in [
            ("partials", partial_bytes, binding),
            ("tile table", table.len() as u64 * 4, binding),
            ("uniforms", uniforms.len() as u64, limits.max_buffer_size),
        ] {
            if bytes > limit {
                return Err(Error::Scratch { set: set.into(), what, bytes, limit });
            }
        }
        let widest = plan.dispatches.iter().map(|d| padded(d, plan)).max().unwrap_or(1);
        let storage = wgpu::BufferUsages::STORAGE;
        guarded(&shared.device, &format!("set \"{set}\": allocating"), || Self {
            table: filled(shared, "gradclip table", storage, bytemuck::cast_slice(&table)),
            partials: empty(shared, "gradclip partials", partial_bytes),
            uniforms: filled(shared, "gradclip uniforms", wgpu::BufferUsages::UNIFORM, &uniforms),
            spare: empty(shared, "gradclip spare", STRIDE * u64::from(widest)),
        })
    }

    pub fn memory_bytes(&self) -> u64 {
        [&self.table, &self.partials, &self.uniforms, &self.spare].map(wgpu::Buffer::size).iter().sum()
    }

    /// What norm_finish and its like read of the plan.
    pub fn finish(&self) -> wgpu::BindingResource<'_> {
        self.uniform(0, size_of::<FinishUniform>())
    }

    /// What a dispatch reads of the plan.
    pub fn dispatch(&self, number: usize) -> wgpu::BindingResource<'_> {
        self.uniform(number as u64 + 1, size_of::<DispatchUniform>())
    }

    fn uniform(&self, slot: u64, size: usize) -> wgpu::BindingResource<'_> {
        // Uniform structs are padded to 16 bytes.
        super::make::part(&self.uniforms, slot * STRIDE, (size as u64).next_multiple_of(16))
    }
}

fn uniform_bytes(plan: &Plan, tensors: usize) -> Vec<u8> {
    let mut bytes = vec![0; (plan.dispatches.len() + 1) * STRIDE as usize];
    let mut put = |slot: usize, value: &[u8]| {
        let at = slot * STRIDE as usize;
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    put(
        0,
        bytemuck::bytes_of(&FinishUniform {
            tile_count: plan.tiles,
            tensor_count: tensors as u32,
            tiles_at: plan.tiles_at(),
            tile_words: plan.tile_words,
            class_starts: plan.class_starts,
        }),
    );
    for (i, dispatch) in plan.dispatches.iter().enumerate() {
        put(
            i + 1,
            bytemuck::bytes_of(&DispatchUniform {
                first_tile: dispatch.first_tile,
                tile_count: dispatch.tiles,
                tile_words: plan.tile_words,
                tiles_at: plan.tiles_at(),
                zero: 0,
            }),
        );
    }
    bytes
}
