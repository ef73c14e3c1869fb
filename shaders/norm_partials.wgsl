// Reads every gradient once and leaves one partial per tile: the exact sum of terms (squares, or magnitudes for an L1
// norm) as 22-bit digits, the largest magnitude, and what was not finite.
//
// Each thread keeps the digits of the four highest cells it has met. A larger element moves the window up; what falls
// out below is what the definition drops. Blocks of words with something nonfinite, or so small that subnormals count,
// are left for a second loop that takes one element at a time.

@group(0) @binding(1) var<storage, read_write> partials: array<Partial>;

// The lowest cells, in which a subnormal's digits are not dropped.
const LOW_CELLS = 3u;

var<workgroup> tile_largest: atomic<u32>;
var<workgroup> tile_nan: atomic<u32>;
var<workgroup> tile_pos_inf: atomic<u32>;
var<workgroup> tile_neg_inf: atomic<u32>;
var<workgroup> tile_first: atomic<u32>;
// Each thread's digit sums.
var<workgroup> thread_digits: array<vec4<u32>, 256>;
// Sums of their lower 16 bits, then of their upper 16.
var<workgroup> halves: array<vec4<u32>, 32>;

// Digit sums of a window of cells, highest first.
struct Window {
    top: u32,
    digits: vec4<u32>,
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group.x + group.y * groups.x;
    if index >= dispatch.tile_count {
        return;
    }
    let tile = find_tile(index);
    if lane == 0u {
        atomicStore(&tile_largest, 0u);
        atomicStore(&tile_nan, 0u);
        atomicStore(&tile_pos_inf, 0u);
        atomicStore(&tile_neg_inf, 0u);
        atomicStore(&tile_first, NO_ELEMENT);
    }
    workgroupBarrier();

    var largest = 0u;
    var window = Window(0u, vec4<u32>(0u));
    // A bit per block. A tile has 32 at most.
    var left = 0u;
    var bit = 1u;
    for (var start = tile.begin; start < tile.end; start += BLOCK_WORDS) {
        let places = block_places(start, lane);
        let words = read_block(tile, places);
        let block = Block(
            keep(tile, places.a, words.a),
            keep(tile, places.b, words.b),
            keep(tile, places.c, words.c),
            keep(tile, places.d, words.d),
        );
        let most_ab = max(larger(block.a), larger(block.b));
        let most_cd = max(larger(block.c), larger(block.d));
        let most = max(most_ab, most_cd);
        let most_pair = max(most.xy, most.zw);
        let peak = widen_any(max(most_pair.x, most_pair.y));
        largest = max(largest, peak);
        let risen = raise(window, peak);
        let by_hand = peak >= NONFINITE || (risen.top <= LOW_CELLS && peak != 0u);
        if by_hand {
            left |= bit;
        } else {
            window = risen;
            let unit = bitcast<f32>((254u - CELL_BINADES * window.top) << 23u);
            for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
                let a = widen(unsigned(block.a, half));
                let b = widen(unsigned(block.b, half));
                let c = widen(unsigned(block.c, half));
                let d = widen(unsigned(block.d, half));
                window.digits += block_digits(a, b, c, d, unit);
            }
        }
        bit = bit << 1u;
    }
    for (; left != 0u; left &= left - 1u) {
        let start = tile.begin + firstTrailingBit(left) * BLOCK_WORDS;
        for (var k = 0u; k < LANE_WORDS; k += 1u) {
            let at = place_of(start, lane, k);
            if at < tile.end {
                let word = keep(tile, vec4<u32>(at), vec4<u32>(read_word(tile.slot, at))).x;
                for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
                    let index = (at - tile.begin) * ELEMENTS_PER_WORD + half;
                    window = take_one(tile, window, word, half, index);
                }
            }
        }
    }
    atomicMax(&tile_largest, largest);
    workgroupBarrier();

    let tile_max = atomicLoad(&tile_largest);
    thread_digits[lane] = raise(window, tile_max).digits;
    workgroupBarrier();
    // Sixteen threads add up sixteen each, then one what they found. In 16-bit halves, 256 of which fit a word. The
    // others are kept out by the loops' bounds and not by a branch, of which a CPU driver runs both sides.
    let count = select(0u, THREADS, lane < 16u);
    var lower = vec4<u32>(0u);
    var upper = vec4<u32>(0u);
    for (var i = lane; i < count; i += 16u) {
        lower += thread_digits[i] & vec4<u32>(0xffffu);
        upper += thread_digits[i] >> vec4<u32>(16u);
    }
    if lane < 16u {
        halves[lane] = lower;
        halves[lane + 16u] = upper;
    }
    workgroupBarrier();
    let last_count = select(0u, 16u, lane == 0u);
    var all_lower = vec4<u32>(0u);
    var all_upper = vec4<u32>(0u);
    for (var i = 0u; i < last_count; i += 1u) {
        all_lower += halves[i];
        all_upper += halves[i + 16u];
    }
    if lane == 0u {
        let low = all_lower + (all_upper << vec4<u32>(16u));
        let high = (all_upper >> vec4<u32>(16u)) + vec4<u32>(low < all_lower);
        partials[tile.index] = Partial(
            tile_max,
            low.x,
            low.y,
            low.z,
            low.w,
            high.x | (high.y << 8u) | (high.z << 16u) | (high.w << 24u),
            atomicLoad(&tile_nan),
            atomicLoad(&tile_pos_inf),
            atomicLoad(&tile_neg_inf),
            atomicLoad(&tile_first),
        );
    }
}

// The window moved up to the cell of a magnitude, if it is not there yet.
fn raise(window: Window, magnitude: u32) -> Window {
    let top = max(window.top, (magnitude >> 23u) / CELL_BINADES);
    return Window(top, rise(window.digits, top - window.top));
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

// One element, whatever it is.
fn take_one(tile: Tile, window: Window, word: u32, half: u32, index: u32) -> Window {
    let magnitude = widen_any(unsigned(vec4<u32>(word), half).x);
    if magnitude >= NONFINITE {
        let sign = (word >> (32u / ELEMENTS_PER_WORD * (half + 1u) - 1u)) & 1u;
        if magnitude > NONFINITE {
            atomicAdd(&tile_nan, 1u);
        } else if sign == 0u {
            atomicAdd(&tile_pos_inf, 1u);
        } else {
            atomicAdd(&tile_neg_inf, 1u);
        }
        atomicMin(&tile_first, index);
        return window;
    }
    var next = raise(window, magnitude);
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
