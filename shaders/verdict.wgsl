// What a step decided. A kernel that applies the factor itself (a fused optimizer) binds this as read-only storage.
struct Verdict {
    // 1: skip the step. No gradient changed. The next three say why.
    skip: u32,
    // 1: a gradient was NaN or infinite, or a result would not fit its format.
    found_inf: u32,
    // 1: all gradients were finite, but a result would not fit its format. Then found_inf is 1 too.
    overflow: u32,
    // 1: the norm was above the threshold from which steps are skipped.
    above: u32,
    // What is left to do to the gradients: 0 nothing, 1 multiply by `factor`, 2 multiply by the exact factor below,
    // which f32 cannot hold.
    apply: u32,
    // The factor as f32, if `apply` is 1; 1 if there is nothing to do, 0 if the step is to be skipped.
    factor: f32,
    // The exact factor is factor_significand * 2^factor_exponent; likewise the next two pairs.
    factor_significand: u32,
    factor_exponent: i32,
    // Norm of the unscaled gradients before clipping: L2, or what the step was told.
    norm_significand: u32,
    norm_exponent: i32,
    coefficient_significand: u32,
    coefficient_exponent: i32,
    // The loss scale that was divided out.
    scale: f32,
    // The run that the loss scale was last updated from.
    consumed: u32,
    // How many steps of this set the GPU has run, modulo 2^32.
    run: u32,
    // How many of those were not skipped, modulo 2^32: the t of AdamW's bias correction.
    taken: u32,
}
