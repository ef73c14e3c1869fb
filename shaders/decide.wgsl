// From a norm to the decision: clip coefficient, factor, whether to skip; and what was not finite, by tensor.

const SEGMENT_WORDS = 7u;
const CENSUS_WORDS = 9u;
const NONE = 0xffffffffu;

// Per tensor, filled in only where something was nonfinite: two words each (low, high) for the counts of NaN, +inf and
// -inf and for the index of the first of them, then the tile that holds it.
struct Report {
    verdict: GradclipVerdict,
    verdict_room: array<u32, 43>,
    own: Own,
    own_room: array<u32, 44>,
    census: array<atomic<u32>>,
}

@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(0) @binding(1) var<storage, read> partials: array<Partial>;
@group(0) @binding(2) var<storage, read_write> report: Report;

// A number of the step, as f32 bits; -0 is 0.
fn number(place: u32, value: u32) -> u32 {
    let bits = select(value, report.own.words[place], ((params.from_words >> place) & 1u) == 1u);
    return select(bits, 0u, bits == 0x80000000u);
}

fn loss_scale() -> u32 {
    return select(number(NUMBER_SCALE, params.scale), scaler.x, told(SCALE_OF_SCALER));
}

fn positive_and_finite(bits: u32) -> bool {
    return bits - 1u < 0x7f7fffffu;
}

// `measured`: the norm before the division by the scale. Each kernel has an `overflows` of its own.
fn decide(nonfinite: bool, measured: R24) {
    if told(CONTINUED) {
        limit_the_rest(measured);
        return;
    }
    let scale = loss_scale();
    let divisor = number(NUMBER_DIVISOR, params.divisor);
    let max_norm = number(NUMBER_MAX_NORM, params.max_norm);
    let eps = number(NUMBER_EPS, params.eps);
    let skip_above = number(NUMBER_SKIP_ABOVE, params.skip_above);
    let given = number(NUMBER_GIVEN, params.given);
    let usable = positive_and_finite(scale) && positive_and_finite(divisor) && max_norm <= 0x7f800000u
        && eps < 0x7f800000u && skip_above - 1u < 0x7f800000u && given < 0x7f800000u;

    report.verdict.scale = bitcast<f32>(scale);
    report.verdict.run += 1u;
    report.verdict.found_inf = 0u;
    report.verdict.overflow = 0u;
    report.verdict.above = 0u;
    report.verdict.bad_scalar = 0u;
    report.verdict.other = 0u;
    report.verdict.halted = 0u;
    var inverse = R24(0u, 0);
    if usable {
        inverse = r24_inverse_product(r24_from_bits(scale), r24_from_bits(divisor));
    }
    report.own.inverse_significand = inverse.significand;
    report.own.inverse_exponent = inverse.exponent;
    report.own.max_norm = max_norm;
    report.own.eps = eps;
    // No scaler: its words are 0.
    if scaler.y != 0u {
        refuse(R24(0u, 0));
        report.verdict.halted = 1u;
        return;
    }
    if nonfinite || !usable {
        refuse(R24(0u, 0));
        report.verdict.found_inf = u32(nonfinite);
        report.verdict.bad_scalar = u32(!usable);
        return;
    }
    var norm = r24_mul(measured, inverse);
    if params.rule == RULE_GIVEN_NORM {
        norm = r24_from_bits(given);
    }
    if skip_above < 0x7f800000u && r24_less(r24_from_bits(skip_above), norm) {
        refuse(norm);
        report.verdict.above = 1u;
        return;
    }
    var coefficient = R24_ONE;
    if params.rule <= RULE_GIVEN_NORM {
        coefficient = coefficient_of(norm, max_norm, eps);
    }
    if params.rule == RULE_COEFFICIENT {
        coefficient = r24_from_bits(given);
    }
    let factor = r24_mul(coefficient, inverse);
    // Without a write there is no format that a result could overflow.
    if one_factor() && told(IN_PLACE) && overflows(coefficient, factor) {
        refuse(norm);
        report.verdict.found_inf = 1u;
        report.verdict.overflow = 1u;
        return;
    }
    report.verdict.skip = 0u;
    report.own.skip = 0u;
    commit(true);
    write_factor(factor);
    write_norm(norm, coefficient);
}

// A step that limits what an earlier limit left, unscaled already. That one counted, and decided whether to skip.
fn limit_the_rest(norm: R24) {
    if report.verdict.skip != 0u {
        report.own.apply = 0u;
        return;
    }
    let coefficient = coefficient_of(norm, params.max_norm, params.eps);
    write_own(coefficient);
    write_norm(norm, coefficient);
}

fn refuse(norm: R24) {
    report.verdict.skip = 1u;
    report.own.skip = 1u;
    commit(false);
    write_nothing();
    write_norm(norm, R24(0u, 0));
}

// The verdict shows the t of this step. Under a scaler it counts once the scale is updated from it, else at once.
fn commit(taken: bool) {
    report.verdict.taken = report.own.steps + u32(taken);
    report.own.skipped_before = report.own.consecutive_skipped;
    if !told(UPDATED) {
        report.own.steps += u32(taken);
        report.own.consecutive_skipped = select(report.own.consecutive_skipped + 1u, 0u, taken);
    }
}

fn write_nothing() {
    report.own.apply = 0u;
    report.verdict.apply = 0u;
    report.verdict.factor = 0.0;
    report.verdict.factor_significand = 0u;
    report.verdict.factor_exponent = 0;
    report.verdict.step_factor_significand = 0u;
    report.verdict.step_factor_exponent = 0;
}

fn write_norm(norm: R24, coefficient: R24) {
    report.verdict.norm_significand = norm.significand;
    report.verdict.norm_exponent = norm.exponent;
    report.verdict.coefficient_significand = coefficient.significand;
    report.verdict.coefficient_exponent = coefficient.exponent;
}

fn write_own(factor: R24) {
    let how = multiplier(factor);
    report.own.apply = how.apply;
    report.own.factor = how.factor;
    report.own.factor_significand = factor.significand;
    report.own.factor_exponent = factor.exponent;
}

// In place nothing is left to do when the step is through.
fn write_factor(factor: R24) {
    write_own(factor);
    var left = factor;
    if told(IN_PLACE) {
        left = R24_ONE;
    }
    let how = multiplier(left);
    report.verdict.apply = how.apply;
    report.verdict.factor = how.factor;
    report.verdict.factor_significand = left.significand;
    report.verdict.factor_exponent = left.exponent;
    report.verdict.step_factor_significand = factor.significand;
    report.verdict.step_factor_exponent = factor.exponent;
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
