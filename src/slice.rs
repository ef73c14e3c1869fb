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

/// What a step does with a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Role {
    /// Counts it in the norm and scales it.
    #[default]
    CountedAndScaled,
    /// Scales it like the others, but leaves it out of the norm: a router's bias, an embedding. NaN, infinity and overflow
    /// in it skip the step.
    ScaledOnly,
    /// Counts it in the norm, and never writes it: what another optimizer steps. NaN and infinity in it skip the step.
    CountedOnly,
}

impl Role {
    /// Every role, in the order in which the crate processes them.
    pub const ALL: [Self; 3] = [Self::CountedAndScaled, Self::ScaledOnly, Self::CountedOnly];

    /// Whether the norm counts it.
    pub(crate) fn counted(self) -> bool {
        self != Self::ScaledOnly
    }

    /// Whether a step writes it.
    pub(crate) fn scaled(self) -> bool {
        self != Self::CountedOnly
    }
}

/// A [`TensorSlice`] and what a step does with it.
#[derive(Debug, Clone, Copy)]
pub struct Gradient<'a> {
    pub(crate) slice: TensorSlice<'a>,
    pub(crate) role: Role,
}

impl<'a> TensorSlice<'a> {
    /// Scaled, but left out of the norm: [`Role::ScaledOnly`].
    #[must_use]
    pub fn outside_norm(self) -> Gradient<'a> {
        self.with_role(Role::ScaledOnly)
    }

    /// Counted in the norm, but never written: [`Role::CountedOnly`].
    #[must_use]
    pub fn measured_only(self) -> Gradient<'a> {
        self.with_role(Role::CountedOnly)
    }

    /// With any role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Gradient<'a> {
        Gradient { slice: self, role }
    }
}

impl<'a> From<TensorSlice<'a>> for Gradient<'a> {
    fn from(slice: TensorSlice<'a>) -> Self {
        slice.with_role(Role::default())
    }
}

/// Name and shape of a tensor of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub name: String,
    pub len: u64,
    pub format: Format,
    pub role: Role,
}
