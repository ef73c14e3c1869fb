// What norm_partials leaves of one tile for norm_finish.

const NONFINITE = 0x7f800000u;
const NO_ELEMENT = 0xffffffffu;

struct Partial {
    // The largest magnitude, as f32 bits; NONFINITE or more: the digits mean nothing.
    largest: u32,
    // Sums of 22-bit digits in the cell of `largest` and the three below, highest first: their low 32 bits. Of an f16 tile
    // the columns of its whole sum, each 2^20 times the next, with 2^39 added to each.
    digit_0: u32,
    digit_1: u32,
    digit_2: u32,
    digit_3: u32,
    // Bits 32 to 39 of the four, highest cell in the lowest byte.
    carries: u32,
    // Counts of NaN, +inf and -inf.
    nan: u32,
    pos_inf: u32,
    neg_inf: u32,
    // Index of the first nonfinite element in the tile, or NO_ELEMENT.
    first: u32,
}

// Digit sums seen from a window `by` cells higher: what falls out below is what the definition drops.
fn rise(digits: vec4<u32>, by: u32) -> vec4<u32> {
    var moved = digits;
    if by == 1u { moved = vec4<u32>(0u, digits.xyz); }
    if by == 2u { moved = vec4<u32>(0u, 0u, digits.xy); }
    if by == 3u { moved = vec4<u32>(0u, 0u, 0u, digits.x); }
    if by >= 4u { moved = vec4<u32>(0u); }
    return moved;
}
