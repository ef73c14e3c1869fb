// Adds up the partials, takes the one square root, and decides: norm, clip coefficient, factor, found_inf.
// One workgroup. Integers only.

const SEGMENT_WORDS = 7u;
const CENSUS_WORDS = 9u;
const NONE = 0xffffffffu;

struct Finish {
    tile_count: u32,
    // The tiles of a format lie together: f32 first, f16 from here, bf16 from there.
    first_f16: u32,
    first_bf16: u32,
    tensor_count: u32,
    // Where in `table` the segment of each tile is listed.
    tiles_at: u32,
    tile_words: u32,
}

struct Limit {
    // f32 bits; infinity: no limit.
    max_norm: u32,
    eps: u32,
    // A step whose norm is above this is skipped; infinity: none is.
    skip_above: u32,
}

// Per tensor, filled in only where something was nonfinite: two words each (low, high) for the counts of NaN, +inf and
// -inf and for the index of the first of them, then the tile that holds it.
struct Report {
    verdict: Verdict,
    census: array<atomic<u32>>,
}

@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(0) @binding(1) var<storage, read> partials: array<Partial>;
@group(0) @binding(2) var<storage, read_write> report: Report;
@group(0) @binding(3) var<uniform> finish: Finish;
@group(1) @binding(0) var<uniform> limit: Limit;
// The loss scale, as f32 bits.
@group(1) @binding(1) var<uniform> loss_scale: vec4<u32>;

// Per format the largest magnitude.
var<workgroup> largest: array<atomic<u32>, 3>;
var<workgroup> nonfinite: u32;

fn format_of(tile: u32) -> u32 {
    return u32(tile >= finish.first_f16) + u32(tile >= finish.first_bf16);
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 3u {
        atomicStore(&largest[lane], 0u);
    }
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    var most = vec3<u32>(0u);
    for (var tile = lane; tile < finish.tile_count; tile += THREADS) {
        let part = partials[tile];
        let format = format_of(tile);
        most = max(most, select(vec3<u32>(0u), vec3<u32>(part.largest), vec3<u32>(format) == vec3<u32>(0u, 1u, 2u)));
        sum = add_tile(sum, part);
    }
    workgroupBarrier();
    for (var format = 0u; format < 3u; format += 1u) {
        atomicMax(&largest[format], most[format]);
    }
    let all_top = add_up(lane, sum);
    let all = vec3<u32>(atomicLoad(&largest[0]), atomicLoad(&largest[1]), atomicLoad(&largest[2]));
    let peak = max(max(all.x, all.y), all.z);
    if lane == 0u {
        nonfinite = u32(peak >= NONFINITE);
        decide(all, all_top);
    }
    if workgroupUniformLoad(&nonfinite) != 0u {
        take_census(lane);
    }
}

fn decide(all: vec3<u32>, top: u32) {
    let scale = loss_scale.x;
    report.verdict.scale = bitcast<f32>(scale);
    report.verdict.run += 1u;
    report.verdict.found_inf = 0u;
    report.verdict.overflow = 0u;
    report.verdict.above = 0u;
    if max(max(all.x, all.y), all.z) >= NONFINITE {
        refuse(R24(0u, 0));
        report.verdict.found_inf = 1u;
        return;
    }
    let inverse = r24_div(R24_ONE, r24_from_bits(scale));
    let norm = r24_mul(norm_scaled(top), inverse);
    if limit.skip_above < NONFINITE && r24_less(r24_from_bits(limit.skip_above), norm) {
        refuse(norm);
        report.verdict.above = 1u;
        return;
    }
    var coefficient = R24_ONE;
    if limit.max_norm < NONFINITE {
        let max_norm = r24_from_bits(limit.max_norm);
        if r24_less(max_norm, norm) {
            coefficient = r24_div(max_norm, r24_add(norm, r24_from_bits(limit.eps)));
        }
    }
    let factor = r24_mul(coefficient, inverse);
    if overflows(all, factor) {
        refuse(norm);
        report.verdict.found_inf = 1u;
        report.verdict.overflow = 1u;
        return;
    }
    report.verdict.skip = 0u;
    report.verdict.taken += 1u;
    write_factor(factor);
    write_norm(norm, coefficient);
}

// Whether the largest magnitude of some format would round to infinity there.
fn overflows(all: vec3<u32>, factor: R24) -> bool {
    return multiply_bits(all.x, factor) >= NONFINITE
        // Half way from f16's largest value to 2^16, and from bf16's to 2^128, rounds to even, which is infinity.
        || multiply_bits(all.y, factor) >= 0x477ff000u
        || multiply_bits(all.z, factor) >= 0x7f7f8000u;
}

fn refuse(norm: R24) {
    report.verdict.skip = 1u;
    report.verdict.apply = 0u;
    report.verdict.factor = 0.0;
    report.verdict.factor_significand = 0u;
    report.verdict.factor_exponent = 0;
    write_norm(norm, R24(0u, 0));
}

fn write_norm(norm: R24, coefficient: R24) {
    report.verdict.norm_significand = norm.significand;
    report.verdict.norm_exponent = norm.exponent;
    report.verdict.coefficient_significand = coefficient.significand;
    report.verdict.coefficient_exponent = coefficient.exponent;
}

fn write_factor(factor: R24) {
    let field = factor.exponent + 150;
    let normal = factor.significand != 0u && field >= 1 && field <= 254;
    let one = factor.significand == R24_ONE.significand && factor.exponent == R24_ONE.exponent;
    report.verdict.apply = select(select(2u, 1u, normal), 0u, one);
    let bits = (u32(clamp(field, 1, 254)) << 23u) | (factor.significand & 0x7fffffu);
    report.verdict.factor = bitcast<f32>(select(0u, bits, normal));
    report.verdict.factor_significand = factor.significand;
    report.verdict.factor_exponent = factor.exponent;
}

// Counts by tensor, only when something was nonfinite.
fn take_census(lane: u32) {
    for (var tensor = lane; tensor < finish.tensor_count; tensor += THREADS) {
        for (var i = 0u; i < 6u; i += 1u) {
            atomicStore(&report.census[tensor * CENSUS_WORDS + i], 0u);
        }
        for (var i = 6u; i < CENSUS_WORDS; i += 1u) {
            atomicStore(&report.census[tensor * CENSUS_WORDS + i], NONE);
        }
    }
    storageBarrier();
    for (var tile = lane; tile < finish.tile_count; tile += THREADS) {
        let part = partials[tile];
        if part.largest >= NONFINITE {
            let at = census_of(tile);
            count(at, part.nan);
            count(at + 2u, part.pos_inf);
            count(at + 4u, part.neg_inf);
            atomicMin(&report.census[at + 8u], tile);
        }
    }
    storageBarrier();
    for (var tile = lane; tile < finish.tile_count; tile += THREADS) {
        if partials[tile].largest >= NONFINITE {
            let at = census_of(tile);
            if atomicLoad(&report.census[at + 8u]) == tile {
                let first = first_nonfinite(tile);
                atomicStore(&report.census[at + 6u], first.lo);
                atomicStore(&report.census[at + 7u], first.hi);
            }
        }
    }
}

fn census_of(tile: u32) -> u32 {
    let segment = table[finish.tiles_at + tile] * SEGMENT_WORDS;
    return table[segment + 4u] * CENSUS_WORDS;
}

// Index in its tensor of the first nonfinite element of a tile.
fn first_nonfinite(tile: u32) -> Wide {
    let segment = table[finish.tiles_at + tile] * SEGMENT_WORDS;
    let per_word = select(2u, 1u, format_of(tile) == 0u);
    // A segment lies in one window, so its elements count below 2^32.
    let before = (tile - table[segment + 3u]) * finish.tile_words * per_word;
    return wide_add(Wide(table[segment + 6u], table[segment + 5u]), Wide(0u, before + partials[tile].first));
}

fn count(at: u32, n: u32) {
    if n == 0u {
        return;
    }
    let before = atomicAdd(&report.census[at], n);
    if before + n < before {
        atomicAdd(&report.census[at + 1u], 1u);
    }
}
