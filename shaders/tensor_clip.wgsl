// What is known of one tensor by itself.
struct TensorClip {
    // Its norm, unscaled; a tensor that holds NaN or infinity has the significand NO_NORM.
    norm_significand: u32,
    norm_exponent: i32,
    // Its largest magnitude, as f32 bits.
    largest: u32,
    // 3 * format (0 f32, 1 f16, 2 bf16) + role.
    kind: u32,
    // What its elements are multiplied by, as in Verdict, where tensors are clipped one by one.
    apply: u32,
    factor: f32,
    factor_significand: u32,
    factor_exponent: i32,
    coefficient_significand: u32,
    coefficient_exponent: i32,
    // The largest magnitude that an element keeps, as f32 bits.
    clip_value: u32,
    // The run of the step that clipped the tensor by its norm; 0: another kind of step wrote this.
    run: u32,
}

const NO_NORM = 0xffffffffu;
