// All or none: if one of several sets skips its step, all do. One thread; a dispatch for each set to hear them, then one for
// each to tell them, before anything is written.

struct Agreement {
    // 1: some set skips.
    skip: u32,
}

struct Turn {
    // 1: forget what was heard before.
    first: u32,
    // 1: tell, 0: hear.
    tell: u32,
}

@group(0) @binding(0) var<storage, read_write> agreement: Agreement;
@group(0) @binding(1) var<uniform> turn: Turn;
@group(1) @binding(0) var<storage, read_write> head: Head;

@compute @workgroup_size(1)
fn main() {
    if turn.first == 1u {
        agreement.skip = 0u;
    }
    if turn.tell == 0u {
        agreement.skip |= head.verdict.skip;
        return;
    }
    if agreement.skip == 0u || head.verdict.skip == 1u {
        return;
    }
    head.verdict.skip = 1u;
    head.verdict.other = 1u;
    head.verdict.taken -= 1u;
    head.verdict.apply = 0u;
    head.verdict.factor = 0.0;
    head.verdict.factor_significand = 0u;
    head.verdict.factor_exponent = 0;
    head.verdict.step_factor_significand = 0u;
    head.verdict.step_factor_exponent = 0;
    head.verdict.coefficient_significand = 0u;
    head.verdict.coefficient_exponent = 0;
    head.own.skip = 1u;
    head.own.apply = 0u;
}
