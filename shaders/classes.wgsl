// The tiles of a set lie in classes: by format (f32, f16, bf16), and of each by role: counted in the norm and scaled, scaled
// only, counted only.

const F16 = 1u;
const ROLES = 3u;
const COUNTED_AND_SCALED = 0u;
const SCALED_ONLY = 1u;
const COUNTED_ONLY = 2u;

struct Finish {
    tile_count: u32,
    tensor_count: u32,
    // Where in `table` the segment of each tile is listed.
    tiles_at: u32,
    tile_words: u32,
    // The first tile of the second class, the third, and so on to the ninth.
    starts_low: vec4<u32>,
    starts_high: vec4<u32>,
}

@group(0) @binding(3) var<uniform> finish: Finish;

fn class_of(tile: u32) -> u32 {
    let low = vec4<u32>(vec4<u32>(tile) >= finish.starts_low);
    let high = vec4<u32>(vec4<u32>(tile) >= finish.starts_high);
    let both = low + high;
    return both.x + both.y + both.z + both.w;
}

fn format_of(tile: u32) -> u32 {
    return class_of(tile) / ROLES;
}

fn role_of(tile: u32) -> u32 {
    return class_of(tile) % ROLES;
}
