// One factor for all tensors.

@group(0) @binding(1) var<storage, read> own: Own;

fn work_of(tile: Tile) -> Work {
    return Work(own.apply, own.factor, own.factor_significand, own.factor_exponent, 0x7f800000u);
}

// A norm is the only limit.
fn clip(bits: vec4<u32>, value: u32) -> vec4<u32> {
    return bits;
}
