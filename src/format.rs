//! The storage formats of gradients.

use core::fmt;

/// How one gradient element is stored. All are little-endian; two 16-bit elements share a 32-bit word, the lower
/// index in the lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
}

impl Format {
    /// Every format, in the order in which the crate processes them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Elements in one 32-bit word.
    #[must_use]
    pub const fn per_word(self) -> u64 {
        4 / self.size()
    }

    /// 32-bit words that `len` elements touch; an odd 16-bit tensor touches half of its last word.
    #[must_use]
    pub const fn words(self, len: u64) -> u64 {
        len.div_ceil(self.per_word())
    }

    /// The name used in files and reports: `f32`, `f16`, `bf16`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
