// Keeps what parameters were, and later what they changed by, as f32: one piece of one tensor a dispatch.

struct Piece {
    // First word of the piece in its window, and in the scratch.
    word: u32,
    scratch_word: u32,
    elements: u32,
    // 0: keep the parameters, 1: replace what was kept by the change since.
    difference: u32,
}

const THREADS = 256u;

@group(0) @binding(0) var<uniform> piece: Piece;
@group(0) @binding(1) var<storage, read> parameters: array<u32>;
@group(0) @binding(2) var<storage, read_write> scratch: array<u32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let element = (group.x + group.y * groups.x) * THREADS + lane;
    if element >= piece.elements {
        return;
    }
    let word = parameters[piece.word + element / ELEMENTS_PER_WORD];
    let half = element % ELEMENTS_PER_WORD;
    let magnitude = widen_any(unsigned(vec4<u32>(word), half).x);
    let sign = (word >> (32u / ELEMENTS_PER_WORD * (half + 1u) - 1u)) << 31u;
    let at = piece.scratch_word + element;
    if piece.difference == 0u {
        scratch[at] = sign | magnitude;
    } else {
        scratch[at] = minus(sign | magnitude, scratch[at]);
    }
}

// a - b of two f32, to nearest even, subnormals kept. Nonfinite operands give NaN.
fn minus(a: u32, b: u32) -> u32 {
    let size_a = a & 0x7fffffffu;
    let size_b = b & 0x7fffffffu;
    let largest = max(size_a, size_b);
    if largest >= 0x7f800000u {
        return 0x7fc00000u;
    }
    // From 2^-100 up neither a subnormal operand nor a subnormal result matters, and the unit rounds as it should.
    if largest >= 0x0d800000u {
        return bitcast<u32>(bitcast<f32>(a) - bitcast<f32>(b));
    }
    // Below, count in units of 2^-149: fewer than 2^49 of them.
    let units_a = units(size_a);
    let units_b = units(size_b);
    let a_first = size_a >= size_b;
    let subtract = ((a ^ b) >> 31u) == 0u;
    var sum = wide_add(units_a, units_b);
    if subtract {
        sum = wide_minus(units_a, units_b);
        if !a_first {
            sum = wide_minus(units_b, units_a);
        }
    }
    let sign = select(b ^ 0x80000000u, a, a_first) & 0x80000000u;
    let rounded = r24_round(sum, -149, false);
    if rounded.significand == 0u {
        return 0u;
    }
    let field = rounded.exponent + 150;
    if field < 1 {
        return sign | sum.lo;
    }
    return sign | (u32(field) << 23u) | (rounded.significand & 0x7fffffu);
}

fn units(magnitude: u32) -> Wide {
    let value = r24_from_bits(magnitude);
    if value.significand == 0u {
        return Wide(0u, 0u);
    }
    let up = value.exponent + 149;
    if up < 0 {
        return Wide(0u, value.significand >> u32(-up));
    }
    return wide_shl(Wide(0u, value.significand), u32(up));
}

fn wide_minus(a: Wide, b: Wide) -> Wide {
    return Wide(a.hi - b.hi - u32(a.lo < b.lo), a.lo - b.lo);
}
