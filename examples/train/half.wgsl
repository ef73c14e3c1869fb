// f16 in integer code. `pack2x16float` may store anything when a value is too large, but here it has to become infinity:
// that is how a loss scale that is too large is noticed.

// Bits of the nearest f16, ties to even.
fn half_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return sign | 0x7e00u;
    }
    // 65520 lies halfway between the largest f16 and the next that there would be.
    if (magnitude >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (magnitude >= 0x38800000u) {
        return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u);
    }
    // Subnormal f16, in units of 2^-24.
    if (magnitude < 0x33000000u) {
        return sign;
    }
    let shift = 126u - (magnitude >> 23u);
    let significand = (magnitude & 0x7fffffu) | 0x800000u;
    let odd = (significand >> shift) & 1u;
    return sign | ((significand + (1u << (shift - 1u)) - 1u + odd) >> shift);
}

// Two f16 in a word, the first in the lower half.
fn halves(values: vec2<f32>) -> u32 {
    return half_bits(values.x) | (half_bits(values.y) << 16u);
}
