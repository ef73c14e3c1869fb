// What a step is told, and what follows from a norm.

// Which norm.
const NORM_INF = 0u;
const NORM_L1 = 1u;
// What the limit holds for: one norm of all tensors, or else each tensor or each element by itself, which
// tensor_factors decides.
const ALL_TENSORS = 0u;
const EACH_TENSOR = 1u;

struct Limit {
    // f32 bits; infinity: no limit.
    max_norm: u32,
    eps: u32,
    // A step whose norm is above this is skipped; infinity: none is.
    skip_above: u32,
    norm_type: u32,
    scope: u32,
    // The largest magnitude that an element keeps, as f32 bits of a value that the format has; infinity: no limit.
    clip_f32: u32,
    clip_f16: u32,
    clip_bf16: u32,
    // Which recording of a ledger this is.
    ticket: u32,
}

@group(1) @binding(0) var<uniform> limit: Limit;

// What a norm is clipped by.
fn coefficient_of(norm: R24) -> R24 {
    if limit.max_norm < 0x7f800000u {
        let max_norm = r24_from_bits(limit.max_norm);
        if r24_less(max_norm, norm) {
            return r24_div(max_norm, r24_add(norm, r24_from_bits(limit.eps)));
        }
    }
    return R24_ONE;
}

// The f32 bits from which a magnitude rounds to infinity, in f32, f16 and bf16. Half way from f16's largest value to 2^16,
// and from bf16's to 2^128, rounds to even, which is infinity.
const OVERFLOW = vec3<u32>(0x7f800000u, 0x477ff000u, 0x7f7f8000u);

// How to multiply by a factor.
struct Multiplier {
    // 0: nothing to do, 1: by `factor`, 2: f32 cannot hold it.
    apply: u32,
    factor: f32,
}

fn multiplier(factor: R24) -> Multiplier {
    let field = factor.exponent + 150;
    let normal = factor.significand != 0u && field >= 1 && field <= 254;
    let one = factor.significand == R24_ONE.significand && factor.exponent == R24_ONE.exponent;
    let bits = (u32(clamp(field, 1, 254)) << 23u) | (factor.significand & 0x7fffffu);
    return Multiplier(select(select(2u, 1u, normal), 0u, one), bitcast<f32>(select(0u, bits, normal)));
}
