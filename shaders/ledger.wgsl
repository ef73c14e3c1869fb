// Sums of digits of many tiles, 64 bits a cell, and the norm that they make. Needs workgroups of 256.

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

// The sum of two.
fn add_sums(a: Sum, b: Sum) -> Sum {
    var sum = raise_sum(a, b.top);
    let more = raise_sum(b, sum.top);
    sum.low += more.low;
    sum.high += more.high + vec4<u32>(sum.low < more.low);
    return sum;
}

// Adds the sums of all threads into `low[0]` and `high[0]`, and returns the highest cell of any. Call from all threads.
fn add_up(lane: u32, sum: Sum) -> u32 {
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
    return top;
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

// The norm before the division by the scale, rounded to 24 bits, from what add_up left: of an L2 norm the square root of
// the sum of digit_i * 2^(22 (top - i) - 254), of an L1 norm the sum of digit_i * 2^(22 (top - i) - 127). `largest`: the
// largest magnitude, as f32 bits, which is the Linf norm.
fn norm_scaled(top: u32, norm_type: u32, largest: u32) -> R24 {
    if norm_type == NORM_INF {
        return r24_from_bits(largest);
    }
    var v = vec4<u32>(0u);
    for (var i = 0u; i < 4u; i += 1u) {
        // v * 2^22 + digit: 128 bits suffice, since the planner keeps a set below 2^39 elements.
        v = vec4<u32>(
            (v.x << 22u) | (v.y >> 10u),
            (v.y << 22u) | (v.z >> 10u),
            (v.z << 22u) | (v.w >> 10u),
            v.w << 22u,
        );
        let w = v.w + low[0][i];
        let carry = u32(w < v.w);
        let z = v.z + high[0][i];
        let z_carried = z + carry;
        let y = v.y + u32(z < v.z) + u32(z_carried < z);
        v = vec4<u32>(v.x + u32(y < v.y), y, z_carried, w);
    }
    let exponent = 22 * (i32(top) - 3);
    if norm_type == NORM_L1 {
        return r24_round_128(v, exponent - 127);
    }
    return r24_sqrt(v, exponent - 254);
}
