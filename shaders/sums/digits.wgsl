// The sums of a thread for f32 and bf16: digits of the four highest cells it has met. A larger element moves the window up;
// what falls out below is what the definition drops.

// The lowest cells, in which a subnormal's digits are not dropped.
const LOW_CELLS = 3u;

// Digit sums of a window of cells, highest first.
struct Sums {
    top: u32,
    digits: vec4<u32>,
}

// The window moved up to the cell of a magnitude, if it is not there yet.
fn raise(sums: Sums, magnitude: u32) -> Sums {
    let top = max(sums.top, (magnitude >> 23u) / CELL_BINADES);
    return Sums(top, rise(sums.digits, top - sums.top));
}

// Whether a block with this largest magnitude has to be taken one element at a time: because of something nonfinite, or
// because subnormals count.
fn by_hand(sums: Sums, peak: u32) -> bool {
    return peak >= NONFINITE || (raise(sums, peak).top <= LOW_CELLS && peak != 0u);
}

// Adds a block, unless it has to be taken by hand.
fn add_block(sums: Sums, block: Block, peak: u32) -> Sums {
    if by_hand(sums, peak) {
        return sums;
    }
    var next = raise(sums, peak);
    let unit = bitcast<f32>((254u - CELL_BINADES * next.top) << 23u);
    for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
        let a = widen(unsigned(block.a, half));
        let b = widen(unsigned(block.b, half));
        let c = widen(unsigned(block.c, half));
        let d = widen(unsigned(block.d, half));
        next.digits += block_digits(a, b, c, d, unit);
    }
    return next;
}

// Adds one magnitude, subnormals too.
fn add_one(sums: Sums, magnitude: u32) -> Sums {
    var next = raise(sums, magnitude);
    var x = bitcast<f32>(magnitude) * bitcast<f32>((254u - CELL_BINADES * next.top) << 23u);
    if magnitude < 0x800000u && next.top <= LOW_CELLS {
        // A driver may read a subnormal as 0: take it from its integer significand.
        x = f32(magnitude) * bitcast<f32>((105u - CELL_BINADES * next.top) << 23u);
    }
    let value = fence(term(vec4<f32>(x, 0.0, 0.0, 0.0)));
    let start = vec2<u32>(0xb5000000u);
    let sum = add_digits(Digits(start, start, start, start), value);
    next.digits += vec4<u32>(
        sum.cell_0.x + sum.cell_0.y,
        sum.cell_1.x + sum.cell_1.y,
        sum.cell_2.x + sum.cell_2.y,
        sum.cell_3.x + sum.cell_3.y,
    );
    return next;
}

// The digits of the tile's window, from its largest magnitude.
fn digits_of(sums: Sums, tile_max: u32) -> vec4<u32> {
    return raise(sums, tile_max).digits;
}

// Stops the compiler from merging a rounded product with what follows.
fn fence(v: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4<u32>(dispatch.zero));
}

// The terms of four magnitudes in units of a cell (`unit` turns its magnitudes into 1 to 2^CELL_BINADES), below 2^22.
fn terms(magnitude: vec4<u32>, unit: f32) -> vec4<f32> {
    return fence(term(bitcast<vec4<f32>>(magnitude) * unit));
}

// Digits of terms, summed in two columns; the highest cell first.
struct Digits {
    cell_0: vec2<u32>,
    cell_1: vec2<u32>,
    cell_2: vec2<u32>,
    cell_3: vec2<u32>,
}

// Adds the digits of four terms. One vector at a time, because sixteen of them at once would not fit registers.
fn add_digits(sum: Digits, value: vec4<f32>) -> Digits {
    let digit_0 = floor(value);
    let rest_1 = (value - digit_0) * 4194304.0;
    let digit_1 = floor(rest_1);
    let rest_2 = (rest_1 - digit_1) * 4194304.0;
    let digit_2 = floor(rest_2);
    let digit_3 = floor((rest_2 - digit_2) * 4194304.0);
    return Digits(
        sum.cell_0 + digit_bits(digit_0),
        sum.cell_1 + digit_bits(digit_1),
        sum.cell_2 + digit_bits(digit_2),
        sum.cell_3 + digit_bits(digit_3),
    );
}

// Two digits and 2^23 add up exactly, and the bits of the sum hold it in their lower part: that spares float-to-integer
// conversions. The upper part, 0x4b000000, is taken off later.
fn digit_bits(digit: vec4<f32>) -> vec2<u32> {
    return bitcast<vec2<u32>>((digit.xy + digit.zw) + vec2<f32>(8388608.0));
}

// Digits of sixteen terms, summed, highest cell first.
fn block_digits(a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>, unit: f32) -> vec4<u32> {
    // What the upper parts of four times digit_bits add up to.
    let start = vec2<u32>(0xd4000000u);
    var sum = Digits(start, start, start, start);
    sum = add_digits(sum, terms(a, unit));
    sum = add_digits(sum, terms(b, unit));
    sum = add_digits(sum, terms(c, unit));
    sum = add_digits(sum, terms(d, unit));
    return vec4<u32>(
        sum.cell_0.x + sum.cell_0.y,
        sum.cell_1.x + sum.cell_1.y,
        sum.cell_2.x + sum.cell_2.y,
        sum.cell_3.x + sum.cell_3.y,
    );
}
