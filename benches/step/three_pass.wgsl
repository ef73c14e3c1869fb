// What people do instead: unscale and check, norm, scale, each a pass over f32 gradients of its own, in plain f32
// arithmetic, cut by the crate's planner. What differs between the passes follows.

const THREADS = 256u;
const SEGMENT_WORDS = 7u;

struct Dispatch {
    first_tile: u32,
    tile_count: u32,
    tile_words: u32,
    tiles_at: u32,
    inverse_scale: f32,
    max_norm: f32,
    all_tiles: u32,
}

struct State {
    found_inf: u32,
    norm: f32,
    coefficient: f32,
}

@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(0) @binding(1) var<storage, read_write> partials: array<f32>;
@group(0) @binding(2) var<storage, read_write> state: State;
@group(1) @binding(0) var<uniform> dispatch: Dispatch;
