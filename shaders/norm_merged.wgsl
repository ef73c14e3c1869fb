// Decides from what all parts of a sharded set measured: norm, clip coefficient, factor, whether to skip. The host merged
// their ledgers and took the root. One workgroup. Integers only.

const THREADS = 256u;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        decide(params.merged_nonfinite != 0u, R24(params.merged_significand, params.merged_exponent));
    }
    if params.merged_nonfinite != 0u {
        take_census(lane);
    }
}

// A clipped gradient is no larger than the limit, which the host keeps below what any format overflows at.
fn overflows(coefficient: R24, factor: R24) -> bool {
    return params.merged_overflow != 0u && is_one(coefficient);
}
