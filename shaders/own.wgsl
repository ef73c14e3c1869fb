// What a set keeps on the GPU beside the verdict, for the crate's own kernels.

struct Own {
    // What the write pass does: as in the verdict, which after a step in place has nothing left to do.
    skip: u32,
    apply: u32,
    factor: f32,
    factor_significand: u32,
    factor_exponent: i32,
    // 1 / (scale * divisor) of the latest step, and its limit, for the kernels that treat tensors by themselves.
    inverse_significand: u32,
    inverse_exponent: i32,
    max_norm: u32,
    eps: u32,
    // Steps that were taken and committed, and skipped in a row: the state that a checkpoint saves.
    steps: u32,
    consecutive_skipped: u32,
    // The second before the latest step, for a kernel that finds out later that it is skipped.
    skipped_before: u32,
    // Numbers from buffers, by NUMBER_*, as `gather` left them.
    words: array<u32, 8>,
}

// The start of a report. Room is left by members, since not every compiler keeps what @size and @align ask for; each part
// starts at a multiple of 256 bytes, so that it can be bound.
struct Head {
    verdict: GradclipVerdict,
    verdict_room: array<u32, 43>,
    own: Own,
    own_room: array<u32, 44>,
}
