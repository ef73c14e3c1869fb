// From a norm to the verdict: clip coefficient, factor, found_inf; and what was not finite, by tensor.

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

fn format_of(tile: u32) -> u32 {
    return u32(tile >= finish.first_f16) + u32(tile >= finish.first_bf16);
}

// `measured`: the norm before the division by the scale. Each kernel has an `overflows` of its own.
fn decide(scale: u32, nonfinite: bool, measured: R24) {
    report.verdict.scale = bitcast<f32>(scale);
    report.verdict.run += 1u;
    report.verdict.found_inf = 0u;
    report.verdict.overflow = 0u;
    report.verdict.above = 0u;
    if nonfinite {
        refuse(R24(0u, 0));
        report.verdict.found_inf = 1u;
        return;
    }
    let inverse = r24_div(R24_ONE, r24_from_bits(scale));
    let norm = r24_mul(measured, inverse);
    if limit.skip_above < NONFINITE && r24_less(r24_from_bits(limit.skip_above), norm) {
        refuse(norm);
        report.verdict.above = 1u;
        return;
    }
    var coefficient = R24_ONE;
    if limit.scope == ALL_TENSORS {
        coefficient = coefficient_of(norm);
    }
    let factor = r24_mul(coefficient, inverse);
    if limit.scope == ALL_TENSORS && overflows(coefficient, factor) {
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
    let how = multiplier(factor);
    report.verdict.apply = how.apply;
    report.verdict.factor = how.factor;
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
