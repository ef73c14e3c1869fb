// Reads every gradient once and leaves one partial per tile: the exact sum of squares as 22-bit digits, the largest
// magnitude, and what was not finite.
//
// Each thread keeps the digits of the four highest cells it has met. A larger element moves the window up; what falls
// out below is what the definition drops.

@group(0) @binding(1) var<storage, read_write> partials: array<Partial>;

var<workgroup> tile_largest: atomic<u32>;
var<workgroup> tile_nan: atomic<u32>;
var<workgroup> tile_pos_inf: atomic<u32>;
var<workgroup> tile_neg_inf: atomic<u32>;
var<workgroup> tile_first: atomic<u32>;
var<workgroup> halves: array<u32, 2048>;
var<workgroup> sums: array<u32, 256>;

// Stops the compiler from merging a rounded product with what follows.
fn fence(v: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) ^ vec4<u32>(dispatch.zero));
}

// The squares of four magnitudes in units of cell `top`, below 2^22.
fn squares(magnitude: vec4<u32>, top: u32) -> vec4<f32> {
    let unit = bitcast<f32>((254u - CELL_BINADES * top) << 23u);
    var x = bitcast<vec4<f32>>(magnitude) * unit;
    if top <= 3u {
        // A driver may read a subnormal as 0: take it from its integer significand.
        let small = vec4<f32>(magnitude & vec4<u32>(0x7fffffu)) * bitcast<f32>((105u - CELL_BINADES * top) << 23u);
        x = select(x, small, magnitude < vec4<u32>(0x800000u));
    }
    return fence(x * x);
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

    var largest = 0u;
    var top = 0u;
    var digits = vec4<u32>(0u);
    for (var start = tile.begin; start < tile.end; start += BLOCK_WORDS) {
        var block: Block;
        if start + BLOCK_WORDS <= tile.whole {
            block = read_block(tile.slot, start + lane);
        } else {
            block = read_ragged(tile, start + lane);
        }
        for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
            let a = magnitudes(block.a, half);
            let b = magnitudes(block.b, half);
            let c = magnitudes(block.c, half);
            let d = magnitudes(block.d, half);
            let most = max(max(a, b), max(c, d));
            let peak = max(max(most.x, most.y), max(most.z, most.w));
            largest = max(largest, peak);
            if peak != 0u && peak < NONFINITE {
                let cell = (peak >> 23u) / CELL_BINADES;
                digits = rise(digits, max(cell, top) - top);
                top = max(cell, top);
                digits += block_digits(squares(a, top), squares(b, top), squares(c, top), squares(d, top));
            }
        }
    }
    workgroupBarrier();
    atomicMax(&tile_largest, largest);
    if largest >= NONFINITE {
        count_nonfinite(tile, lane);
    }
    workgroupBarrier();

    let tile_max = atomicLoad(&tile_largest);
    let tile_top = (tile_max >> 23u) / CELL_BINADES;
    digits = rise(digits, max(tile_top, top) - top);
    // 16-bit halves, so that 256 of them fit a word.
    for (var i = 0u; i < 4u; i += 1u) {
        halves[(2u * i) * THREADS + lane] = digits[i] & 0xffffu;
        halves[(2u * i + 1u) * THREADS + lane] = digits[i] >> 16u;
    }
    workgroupBarrier();
    // 32 threads for each of the eight sums, eight values each.
    let row = (lane / 32u) * THREADS + (lane % 32u);
    var sum = 0u;
    for (var i = 0u; i < 8u; i += 1u) {
        sum += halves[row + 32u * i];
    }
    sums[lane] = sum;
    workgroupBarrier();
    if lane < 8u {
        var all = 0u;
        for (var i = 0u; i < 32u; i += 1u) {
            all += sums[lane * 32u + i];
        }
        halves[lane] = all;
    }
    workgroupBarrier();
    if lane == 0u {
        var low = vec4<u32>(0u);
        var carries = 0u;
        for (var i = 0u; i < 4u; i += 1u) {
            let upper = halves[2u * i + 1u];
            let word = halves[2u * i] + (upper << 16u);
            low[i] = word;
            carries |= ((upper >> 16u) + u32(word < halves[2u * i])) << (8u * i);
        }
        let nan = atomicLoad(&tile_nan) | (atomicLoad(&tile_pos_inf) << 16u);
        let neg = atomicLoad(&tile_neg_inf) | (atomicLoad(&tile_first) << 16u);
        partials[tile.index] = Partial(tile_max, low.x, low.y, low.z, low.w, carries, nan, neg);
    }
}

// Digits of sixteen squares, summed, highest cell first. `floor(t) + 2^23` holds the digit in its low bits, which
// spares a float-to-integer conversion.
fn block_digits(t0: vec4<f32>, t1: vec4<f32>, t2: vec4<f32>, t3: vec4<f32>) -> vec4<u32> {
    let f0 = floor(t0);
    let f1 = floor(t1);
    let f2 = floor(t2);
    let f3 = floor(t3);
    let u0 = (t0 - f0) * 4194304.0;
    let u1 = (t1 - f1) * 4194304.0;
    let u2 = (t2 - f2) * 4194304.0;
    let u3 = (t3 - f3) * 4194304.0;
    let g0 = floor(u0);
    let g1 = floor(u1);
    let g2 = floor(u2);
    let g3 = floor(u3);
    let v0 = (u0 - g0) * 4194304.0;
    let v1 = (u1 - g1) * 4194304.0;
    let v2 = (u2 - g2) * 4194304.0;
    let v3 = (u3 - g3) * 4194304.0;
    let h0 = floor(v0);
    let h1 = floor(v1);
    let h2 = floor(v2);
    let h3 = floor(v3);
    let w0 = floor((v0 - h0) * 4194304.0);
    let w1 = floor((v1 - h1) * 4194304.0);
    let w2 = floor((v2 - h2) * 4194304.0);
    let w3 = floor((v3 - h3) * 4194304.0);
    return vec4<u32>(
        digit_sum(f0, f1, f2, f3),
        digit_sum(g0, g1, g2, g3),
        digit_sum(h0, h1, h2, h3),
        digit_sum(w0, w1, w2, w3),
    );
}

fn digit_sum(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> u32 {
    let sum = digit_bits(a) + digit_bits(b) + digit_bits(c) + digit_bits(d);
    return sum.x + sum.y + sum.z + sum.w - 0xb0000000u;
}

fn digit_bits(f: vec4<f32>) -> vec4<u32> {
    return bitcast<vec4<u32>>(f + vec4<f32>(8388608.0));
}

// Runs only for a thread that met something nonfinite: looks through its words again.
fn count_nonfinite(tile: Tile, lane: u32) {
    for (var at = tile.begin + lane; at < tile.end; at += THREADS) {
        let word = keep(tile, vec4<u32>(at), read_at(tile.slot, vec4<u32>(at))).x;
        for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
            let magnitude = magnitudes(vec4<u32>(word), half).x;
            if magnitude < NONFINITE {
                continue;
            }
            let sign = (word >> (32u / ELEMENTS_PER_WORD * (half + 1u) - 1u)) & 1u;
            if magnitude > NONFINITE {
                atomicAdd(&tile_nan, 1u);
            } else if sign == 0u {
                atomicAdd(&tile_pos_inf, 1u);
            } else {
                atomicAdd(&tile_neg_inf, 1u);
            }
            atomicMin(&tile_first, (at - tile.begin) * ELEMENTS_PER_WORD + half);
        }
    }
}
