// Each tensor has a factor and a limit of its own.

@group(0) @binding(1) var<storage, read> own: Own;
@group(0) @binding(2) var<storage, read> clips: array<TensorClip>;

fn work_of(tile: Tile) -> Work {
    return Work(
        // Whether the step is skipped, its other sets have a say in.
        select(clips[tile.tensor].apply, 0u, own.skip != 0u),
        clips[tile.tensor].factor,
        clips[tile.tensor].factor_significand,
        clips[tile.tensor].factor_exponent,
        clips[tile.tensor].clip_value,
    );
}

// f32 bits, with or without a sign, made no larger than `value`. Infinity, where a product overflows, becomes `value`.
fn clip(bits: vec4<u32>, value: u32) -> vec4<u32> {
    let sign = vec4<u32>(0x80000000u);
    return (bits & sign) | min(bits & ~sign, vec4<u32>(value));
}
