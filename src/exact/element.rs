//! Elements as integers: where the fields of a format lie, and how to walk over the elements of a tensor.

use crate::format::Format;

/// The fields of a format, and what follows from them.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Width of the stored fraction, in bits.
    pub fraction_bits: u32,
    /// The exponent of the last fraction bit of a subnormal: all values are multiples of 2 to this power.
    pub lowest: i32,
    /// The bits of +inf, which are the exponent mask as well.
    pub infinity: u32,
    /// The sign bit.
    pub sign: u32,
}

impl Layout {
    /// The fields of `format`.
    pub const fn of(format: Format) -> Self {
        match format {
            Format::F32 => Self { fraction_bits: 23, lowest: -149, infinity: 0x7f80_0000, sign: 1 << 31 },
            Format::F16 => Self { fraction_bits: 10, lowest: -24, infinity: 0x7c00, sign: 1 << 15 },
            Format::Bf16 => Self { fraction_bits: 7, lowest: -133, infinity: 0x7f80, sign: 1 << 15 },
        }
    }

    /// The element without its sign.
    pub const fn magnitude(self, bits: u32) -> u32 {
        bits & (self.sign - 1)
    }

    /// `(m, p)` such that a finite element has the magnitude `m * 2^p`; `m` has at most 24 bits.
    pub const fn split(self, bits: u32) -> (u32, i32) {
        let magnitude = self.magnitude(bits);
        let fraction = magnitude & ((1 << self.fraction_bits) - 1);
        match magnitude >> self.fraction_bits {
            0 => (fraction, self.lowest),
            // At most eight bits wide, so the cast keeps it.
            field => (fraction | 1 << self.fraction_bits, self.lowest + field as i32 - 1),
        }
    }
}

/// Calls `visit` with the bits of each whole element, in order.
#[inline]
pub(crate) fn for_each(format: Format, bytes: &[u8], mut visit: impl FnMut(u32)) {
    match format {
        Format::F32 => {
            bytes.chunks_exact(4).for_each(|b| visit(u32::from_le_bytes([b[0], b[1], b[2], b[3]])))
        }
        Format::F16 | Format::Bf16 => {
            bytes.chunks_exact(2).for_each(|b| visit(u32::from(u16::from_le_bytes([b[0], b[1]]))))
        }
    }
}

/// Replaces each whole element by what `change` makes of its bits.
///
/// Of a 16-bit element only the lower half of the new bits is stored.
#[inline]
pub(crate) fn replace_each(format: Format, bytes: &mut [u8], mut change: impl FnMut(u32) -> u32) {
    match format {
        Format::F32 => bytes.chunks_exact_mut(4).for_each(|b| {
            let new = change(u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            b.copy_from_slice(&new.to_le_bytes());
        }),
        Format::F16 | Format::Bf16 => bytes.chunks_exact_mut(2).for_each(|b| {
            let [low, high, ..] = change(u32::from(u16::from_le_bytes([b[0], b[1]]))).to_le_bytes();
            b.copy_from_slice(&[low, high]);
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_is_exact_for_every_16_bit_element() {
        for bits in 0..0x1_0000u32 {
            let layout = Layout::of(Format::Bf16);
            if layout.magnitude(bits) < layout.infinity {
                let (m, p) = layout.split(bits);
                let want = f64::from(f32::from_bits(bits << 16).abs());
                assert_eq!(f64::from(m) * 2f64.powi(p), want, "{bits:04x}");
            }
        }
        let f16 = Layout::of(Format::F16);
        for (bits, want) in [(1, 2f64.powi(-24)), (0x3c00, 1.0), (0xfbff, 65504.0), (0x0400, 2f64.powi(-14))]
        {
            let (m, p) = f16.split(bits);
            assert_eq!(f64::from(m) * 2f64.powi(p), want, "{bits:04x}");
        }
    }

    #[test]
    fn a_trailing_partial_element_is_left_alone() {
        for (format, len) in [(Format::F32, 7), (Format::F16, 5), (Format::Bf16, 5)] {
            let mut bytes = vec![0xaa; len];
            let mut seen = 0;
            for_each(format, &bytes, |_| seen += 1);
            replace_each(format, &mut bytes, |_| 0);
            let whole = usize::try_from(seen * format.size()).unwrap();
            assert!(len - whole < usize::try_from(format.size()).unwrap());
            assert!(bytes[..whole].iter().all(|&b| b == 0));
            assert!(bytes[whole..].iter().all(|&b| b == 0xaa));
        }
    }
}
