// What is to be done to the elements of a tile.
struct Work {
    // 0 nothing, 1 multiply by `factor`, 2 multiply by the exact factor.
    apply: u32,
    factor: f32,
    factor_significand: u32,
    factor_exponent: i32,
    // The largest magnitude that is left, as f32 bits.
    clip_value: u32,
}
