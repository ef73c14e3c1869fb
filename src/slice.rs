//! Where tensors lie.

use crate::Format;

/// Where one gradient tensor lies: `len` elements from byte `offset` of `buffer`, back to back.
#[derive(Debug, Clone, Copy)]
pub struct TensorSlice<'a> {
    /// The engine's buffer, of the context's device; needs [`wgpu::BufferUsages::STORAGE`]. A buffer of another device is
    /// refused, one of another [`wgpu::Instance`] makes wgpu itself panic.
    pub buffer: &'a wgpu::Buffer,
    /// First byte, a multiple of 4.
    pub offset: u64,
    /// Elements; 0 is fine.
    pub len: u64,
    /// How the elements are stored.
    pub format: Format,
}

/// Name and shape of a tensor of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub name: String,
    pub len: u64,
    pub format: Format,
}
