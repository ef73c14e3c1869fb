// What a step decided. A kernel of the engine that steps the optimizer binds this as read-only storage.
struct GradclipVerdict {
    // 1: skip the step. No gradient changed. The next six say why, each by a 1.
    skip: u32,
    // A gradient was NaN or infinite, or a result would not fit its format.
    found_inf: u32,
    // All gradients were finite, but a result would not fit its format. Then found_inf is 1 too.
    overflow: u32,
    // The norm was above the threshold from which steps are skipped.
    above: u32,
    // A number that the step read from a buffer was none that it can use.
    bad_scalar: u32,
    // Another set that is stepped together with this one is skipped.
    other: u32,
    // Too many steps in a row were skipped: nothing moves until the host says so.
    halted: u32,
    // What is left to do to the gradients: 0 nothing, 1 multiply by `factor`, 2 multiply by the exact factor below,
    // which f32 cannot hold.
    apply: u32,
    // The factor as f32, if `apply` is 1; 1 if there is nothing to do, 0 if the step is to be skipped.
    factor: f32,
    // The exact factor is factor_significand * 2^factor_exponent; likewise the next pairs. 1 if there is nothing to do.
    factor_significand: u32,
    factor_exponent: i32,
    // What the gradients are multiplied by in all, whether the step did it in place or leaves it to be done:
    // coefficient / (scale * divisor).
    step_factor_significand: u32,
    step_factor_exponent: i32,
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
    // The t of AdamW's bias correction: steps of this set that were taken, this one included.
    taken: u32,
}
