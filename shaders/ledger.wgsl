// Sums of digits of many tiles, 64 bits a cell, the whole sum of f16, and the norm that they make. Needs workgroups of 256.

const THREADS = 256u;

// Digit sums of four cells, highest first: low and high words.
struct Sum {
    top: u32,
    low: vec4<u32>,
    high: vec4<u32>,
}

var<workgroup> low: array<vec4<u32>, 256>;
var<workgroup> high: array<vec4<u32>, 256>;
var<workgroup> highest: array<u32, 256>;

fn raise_sum(sum: Sum, top: u32) -> Sum {
    let to = max(sum.top, top);
    return Sum(to, rise(sum.low, to - sum.top), rise(sum.high, to - sum.top));
}

// Binades of an element that a cell spans: squares have twice as many.
fn cell_binades(norm_type: u32) -> u32 {
    return select(11u, 22u, norm_type == NORM_L1);
}

fn add_tile(sum: Sum, part: Partial, norm_type: u32) -> Sum {
    let cell = part.largest / (cell_binades(norm_type) << 23u);
    var next = raise_sum(sum, cell);
    let digits = rise(vec4<u32>(part.digit_0, part.digit_1, part.digit_2, part.digit_3), next.top - cell);
    let bytes = (vec4<u32>(part.carries) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
    next.low += digits;
    next.high += rise(bytes, next.top - cell) + vec4<u32>(next.low < digits);
    return next;
}

// Adds a tile of f16: `top` stays 0, and the four are the columns of its whole sum, which have signs here.
fn add_f16_tile(sum: Sum, part: Partial) -> Sum {
    let columns = vec4<u32>(part.digit_0, part.digit_1, part.digit_2, part.digit_3);
    let bytes = (vec4<u32>(part.carries) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
    var next = sum;
    next.low += columns;
    // 2^39 off.
    next.high += (bytes - vec4<u32>(128u)) + vec4<u32>(next.low < columns);
    return next;
}

// The sum of two.
fn add_sums(a: Sum, b: Sum) -> Sum {
    var sum = raise_sum(a, b.top);
    let more = raise_sum(b, sum.top);
    sum.low += more.low;
    sum.high += more.high + vec4<u32>(sum.low < more.low);
    return sum;
}

// Adds up the sums of all threads; the first thread gets what they make. Call from all threads.
fn add_up(lane: u32, sum: Sum) -> Sum {
    highest[lane] = sum.top;
    for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
        workgroupBarrier();
        if lane < stride {
            highest[lane] = max(highest[lane], highest[lane + stride]);
        }
    }
    workgroupBarrier();
    let top = highest[0];
    let raised = raise_sum(sum, top);
    low[lane] = raised.low;
    high[lane] = raised.high;
    add_lanes(lane);
    return Sum(top, low[lane], high[lane]);
}

// The same for f16, whose whole sum the first thread gets.
fn add_up_f16(lane: u32, sum: Sum) -> vec4<u32> {
    low[lane] = sum.low;
    high[lane] = sum.high;
    add_lanes(lane);
    return whole_sum(low[lane], high[lane]);
}

// Adds up `low` and `high` over all threads, into the first. Call from all threads.
fn add_lanes(lane: u32) {
    for (var stride = THREADS / 2u; stride > 0u; stride /= 2u) {
        workgroupBarrier();
        if lane < stride {
            let added = low[lane] + low[lane + stride];
            high[lane] += high[lane + stride] + vec4<u32>(added < low[lane]);
            low[lane] = added;
        }
    }
}

// The norm before the division by the scale, rounded to 24 bits: of an L2 norm the square root of the sum of
// digit_i * 2^(22 (top - i) - 254), of an L1 norm the sum of digit_i * 2^(22 (top - i) - 127), with the whole sum of f16, of
// which what is below the unit of the lowest digit is dropped. `largest`: the largest magnitude, as f32 bits, which is the
// Linf norm.
fn norm_scaled(sum: Sum, f16: vec4<u32>, norm_type: u32, largest: u32) -> R24 {
    if norm_type == NORM_INF {
        return r24_from_bits(largest);
    }
    let l1 = norm_type == NORM_L1;
    // The leading bit is in the cell (log2 of the sum + 254) / 22 or (log2 + 127) / 22; its unit is 2^-48 or 2^-24.
    let bits = wide_128_bits(f16);
    let leading = (bits + select(205u, 102u, l1)) / 22u;
    let all = raise_sum(sum, select(leading, 0u, bits == 0u));
    let lowest = 22 * (i32(all.top) - 3);
    let by = lowest - select(206, 103, l1);
    // Below 2^88.
    var v = wide_128_shr(wide_128_shl(f16, u32(max(-by, 0))), u32(max(by, 0)));
    var digits = vec4<u32>(0u);
    for (var i = 0u; i < 4u; i += 1u) {
        // digits * 2^22 + digit: 128 bits suffice, since the planner keeps a set below 2^39 elements.
        digits = wide_128_add(wide_128_shl(digits, 22u), vec4<u32>(0u, 0u, all.high[i], all.low[i]));
    }
    v = wide_128_add(v, digits);
    if l1 {
        return r24_round_128(v, lowest - 127);
    }
    return r24_sqrt(v, lowest - 254);
}
