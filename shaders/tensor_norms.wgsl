// The norm of each tensor by itself, for a report: one workgroup a tensor, from the partials of the read pass.

// The tiles of a tensor: a run of them, and another if its end is read in another way.
struct Range {
    first_tile: u32,
    tile_count: u32,
    rest_tile: u32,
    rest_count: u32,
}

struct Norms {
    tensor_count: u32,
}

// Significand and exponent; a tensor that holds NaN or infinity has the significand NO_NORM.
const NO_NORM = 0xffffffffu;

@group(0) @binding(0) var<storage, read> ranges: array<Range>;
@group(0) @binding(1) var<storage, read> partials: array<Partial>;
@group(0) @binding(2) var<storage, read_write> norms: array<R24>;
@group(0) @binding(3) var<uniform> info: Norms;
// The loss scale, as f32 bits.
@group(1) @binding(1) var<uniform> loss_scale: vec4<u32>;

var<workgroup> bad: atomic<u32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tensor = group.x + group.y * groups.x;
    if tensor >= info.tensor_count {
        return;
    }
    if lane == 0u {
        atomicStore(&bad, 0u);
    }
    workgroupBarrier();
    let range = ranges[tensor];
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    for (var tile = lane; tile < range.tile_count + range.rest_count; tile += THREADS) {
        let rest = range.rest_tile + tile - range.tile_count;
        let part = partials[select(range.first_tile + tile, rest, tile >= range.tile_count)];
        if part.largest >= NONFINITE {
            atomicStore(&bad, 1u);
        }
        sum = add_tile(sum, part);
    }
    let top = add_up(lane, sum);
    if lane == 0u {
        let inverse = r24_div(R24_ONE, r24_from_bits(loss_scale.x));
        let norm = r24_mul(norm_scaled(top), inverse);
        norms[tensor] = norm;
        if atomicLoad(&bad) != 0u {
            norms[tensor] = R24(NO_NORM, 0);
        }
    }
}
