// What a step is told, and what follows from a norm.

// Which norm.
const NORM_INF = 0u;
const NORM_L1 = 1u;

// What the limit is.
const RULE_NORM = 0u;
const RULE_GIVEN_NORM = 1u;
const RULE_COEFFICIENT = 2u;
// These two hold for each tensor or each element by itself, which tensor_factors decides.
const RULE_EACH_TENSOR = 3u;
const RULE_VALUE = 4u;

// Bits of `flags`.
const IN_PLACE = 1u;
// The scale is the scaler's, and not the one here.
const SCALE_OF_SCALER = 2u;
// `scale_update` commits the step: it counts when the scale is updated from it.
const UPDATED = 4u;
// The second limit of a step: what the first decided stands.
const CONTINUED = 8u;

// The numbers that may come from buffers, by their place in `words`.
const NUMBER_SCALE = 0u;
const NUMBER_DIVISOR = 1u;
const NUMBER_MAX_NORM = 2u;
const NUMBER_EPS = 3u;
const NUMBER_SKIP_ABOVE = 4u;
const NUMBER_GIVEN = 5u;

struct Step {
    // f32 bits of the six numbers, in their order: scale, divisor, limit (infinity: none), eps, the norm above which the
    // step is skipped (infinity: never), a norm or coefficient from elsewhere.
    scale: u32,
    divisor: u32,
    max_norm: u32,
    eps: u32,
    skip_above: u32,
    given: u32,
    // A bit for each number that comes from a buffer instead.
    from_words: u32,
    norm_type: u32,
    rule: u32,
    flags: u32,
    // The largest magnitude that an element keeps, as f32 bits of a value that the format has; infinity: no limit.
    clip_f32: u32,
    clip_f16: u32,
    clip_bf16: u32,
    // Which recording of a ledger this is.
    ticket: u32,
    // Of a merged ledger: 1 if some part holds NaN or infinity; 1 if in some part a gradient divided by the scale alone
    // would not fit its format; the norm before the division by the scale.
    merged_nonfinite: u32,
    merged_overflow: u32,
    merged_significand: u32,
    merged_exponent: i32,
    // Sets that are stepped under one norm.
    joined: u32,
}

@group(1) @binding(0) var<uniform> params: Step;
// The scaler's state, as far as a step reads it: the loss scale as f32 bits; 1: halted.
@group(2) @binding(0) var<uniform> scaler: vec4<u32>;

fn told(flag: u32) -> bool {
    return (params.flags & flag) != 0u;
}

// One factor for all gradients.
fn one_factor() -> bool {
    return params.rule < RULE_EACH_TENSOR;
}

// What a norm is clipped by. f32 bits of the limit and of eps.
fn coefficient_of(norm: R24, max_norm: u32, eps: u32) -> R24 {
    if max_norm < 0x7f800000u {
        let limit = r24_from_bits(max_norm);
        if r24_less(limit, norm) {
            return r24_div(limit, r24_add(norm, r24_from_bits(eps)));
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
    let bits = (u32(clamp(field, 1, 254)) << 23u) | (factor.significand & 0x7fffffu);
    return Multiplier(select(select(2u, 1u, normal), 0u, is_one(factor)), bitcast<f32>(select(0u, bits, normal)));
}

fn is_one(value: R24) -> bool {
    return value.significand == R24_ONE.significand && value.exponent == R24_ONE.exponent;
}
