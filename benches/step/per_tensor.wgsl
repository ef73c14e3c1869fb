// What people write by hand: sums of squares of one tensor, and its scaling. A tile is 16384 words.

const THREADS = 256u;
const TILE = 16384u;

struct Part {
    words: u32,
    first_tile: u32,
    tiles: u32,
}

@group(0) @binding(0) var<storage, ACCESS> words: array<f32>;
@group(0) @binding(1) var<uniform> part: Part;
@group(1) @binding(0) var<storage, read_write> partials: array<f32>;
@group(1) @binding(1) var<storage, read_write> total: array<f32>;
@group(1) @binding(2) var<uniform> factor: vec4<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
BODY
}
