// The loss scale after all optimizers of a scaler: grow, back off, count. One thread; one dispatch for each optimizer,
// the last of which decides.

struct Config {
    // f64 factors as 53-bit significand (high word first) and power of two, so that the scale is PyTorch's on every bit.
    growth_high: u32,
    growth_low: u32,
    growth_exponent: i32,
    backoff_high: u32,
    backoff_low: u32,
    backoff_exponent: i32,
    growth_interval: u32,
    hysteresis: u32,
    // f32 bits.
    min_scale: u32,
    max_scale: u32,
    // 1: every finite step refills the hysteresis, else only growth does.
    refill_on_finite: u32,
    // 0: the scale is constant.
    dynamic: u32,
    // Skipped steps of a set in a row that halt the scaler; 0: none do.
    most_skipped: u32,
}

struct Turn {
    // 1: the first optimizer of this update.
    first: u32,
    // 1: the last.
    last: u32,
}

@group(0) @binding(0) var<storage, read_write> state: ScalerState;
@group(0) @binding(1) var<uniform> config: Config;
@group(0) @binding(2) var<uniform> turn: Turn;
@group(1) @binding(0) var<storage, read_write> head: Head;

@compute @workgroup_size(1)
fn main() {
    if turn.first == 1u {
        state.found_inf = 0u;
        state.left_out = 0u;
        state.fresh = 0u;
    }
    collect();
    if turn.last == 1u && state.fresh != 0u {
        update();
    }
}

// A verdict counts once: one that an earlier update has seen belongs to a step that never ran. After the halt none does.
fn collect() {
    if head.verdict.run == head.verdict.consumed {
        state.missed = one_more(state.missed);
        return;
    }
    head.verdict.consumed = head.verdict.run;
    if head.verdict.halted == 1u {
        return;
    }
    state.fresh = one_more(state.fresh);
    if head.verdict.above == 1u {
        state.above = one_more(state.above);
    }
    if head.verdict.skip == 1u {
        if head.verdict.found_inf == 1u && head.verdict.overflow == 0u {
            state.found_inf = 1u;
        } else {
            state.left_out = 1u;
        }
        head.own.consecutive_skipped = one_more(head.own.consecutive_skipped);
        if config.most_skipped != 0u && head.own.consecutive_skipped >= config.most_skipped {
            state.halted = 1u;
        }
        return;
    }
    head.own.consecutive_skipped = 0u;
    head.own.steps = one_more(head.own.steps);
    state.stepped = one_more(state.stepped);
    let whole = head.verdict.coefficient_significand == R24_ONE.significand
        && head.verdict.coefficient_exponent == R24_ONE.exponent;
    if !whole {
        state.clipped = one_more(state.clipped);
    }
}

fn update() {
    state.updates = one_more(state.updates);
    if state.found_inf == 1u {
        state.growth_tracker = 0u;
        state.skipped = one_more(state.skipped);
        state.consecutive_skipped = one_more(state.consecutive_skipped);
        state.hysteresis_left = max(state.hysteresis_left, 1u) - 1u;
        if state.hysteresis_left == 0u && config.dynamic == 1u {
            back_off();
        }
    } else if state.left_out == 1u {
        // The scale is not to blame: a smaller one would not help, and a larger one was not earned.
        state.skipped = one_more(state.skipped);
        state.consecutive_skipped = one_more(state.consecutive_skipped);
    } else {
        state.consecutive_skipped = 0u;
        if config.refill_on_finite == 1u {
            state.hysteresis_left = config.hysteresis;
        }
        state.growth_tracker = one_more(state.growth_tracker);
        if state.growth_tracker >= config.growth_interval {
            if config.dynamic == 1u {
                grow();
            }
            state.growth_tracker = 0u;
            state.hysteresis_left = config.hysteresis;
        }
    }
}

// Counts stop at the largest number, so that a state never contradicts itself.
fn one_more(count: u32) -> u32 {
    return count + u32(count != 0xffffffffu);
}

fn back_off() {
    let backed = times_f64(state.scale, config.backoff_high, config.backoff_low, config.backoff_exponent);
    let rounded = r24_round(backed.significand, backed.exponent, false);
    let field = rounded.exponent + 150;
    let bits = select(0u, (u32(max(field, 1)) << 23u) | (rounded.significand & 0x7fffffu), field >= 1);
    state.scale = max(bits, config.min_scale);
}

fn grow() {
    let grown = times_f64(state.scale, config.growth_high, config.growth_low, config.growth_exponent);
    if exceeds(grown, r24_from_bits(config.max_scale)) {
        return;
    }
    let rounded = r24_round(grown.significand, grown.exponent, false);
    state.scale = (u32(rounded.exponent + 150) << 23u) | (rounded.significand & 0x7fffffu);
}

// A 53-bit significand and a power of two.
struct F64 {
    significand: Wide,
    exponent: i32,
}

// An f32 times an f64, rounded to 53 bits like the f64 product.
fn times_f64(bits: u32, high: u32, low: u32, exponent: i32) -> F64 {
    let s = r24_from_bits(bits);
    // The factor in pieces of 24, 24 and 5 bits.
    let p0 = product_24(s.significand, low & 0xffffffu);
    let p1 = product_24(s.significand, (low >> 24u) | ((high & 0xffffu) << 8u));
    let p2 = s.significand * (high >> 16u);
    // Of the 77-bit sum: bits 0 to 23 in `bottom`, the others in `top`.
    let bottom = p0.lo & 0xffffffu;
    let carried = wide_add(wide_shr(p0, 24u), p1);
    let top = wide_add(carried, wide_shl(Wide(0u, p2), 24u));
    // `top` has 52 or 53 bits; the rest decides the rounding.
    let bits_of_top = wide_bits(top);
    var kept = top;
    var rest = bottom;
    var half = 0x800000u;
    var e = s.exponent + exponent + 24;
    if bits_of_top == 52u {
        kept = wide_add(wide_shl(top, 1u), Wide(0u, bottom >> 23u));
        rest = bottom & 0x7fffffu;
        half = 0x400000u;
        e -= 1;
    }
    if rest > half || (rest == half && (kept.lo & 1u) == 1u) {
        kept = wide_add(kept, Wide(0u, 1u));
    }
    return F64(kept, e);
}

fn exceeds(a: F64, limit: R24) -> bool {
    let top_a = a.exponent + i32(wide_bits(a.significand));
    let top_limit = limit.exponent + 24;
    if top_a != top_limit {
        return top_a > top_limit;
    }
    let wide = wide_shl(a.significand, 64u - wide_bits(a.significand));
    let bound = wide_shl(Wide(0u, limit.significand), 40u);
    return wide.hi > bound.hi || (wide.hi == bound.hi && wide.lo > bound.lo);
}
