// Decides from what all parts of a sharded set measured: norm, clip coefficient, factor, found_inf. The host merged
// their ledgers and took the root. One workgroup. Integers only.

const THREADS = 256u;

struct Merged {
    // The loss scale, as f32 bits.
    scale: u32,
    // 1: some part holds NaN or infinity.
    nonfinite: u32,
    // 1: in some part a gradient divided by the scale alone would not fit its format.
    overflow: u32,
    // The norm before the division by the scale.
    norm_significand: u32,
    norm_exponent: i32,
}

@group(1) @binding(1) var<uniform> merged: Merged;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        decide(merged.scale, merged.nonfinite != 0u, R24(merged.norm_significand, merged.norm_exponent));
    }
    if merged.nonfinite != 0u {
        take_census(lane);
    }
}

// A clipped gradient is no larger than the limit, which the host keeps below what any format overflows at.
fn overflows(coefficient: R24, factor: R24) -> bool {
    return merged.overflow != 0u
        && coefficient.significand == R24_ONE.significand
        && coefficient.exponent == R24_ONE.exponent;
}
