// The norm of each tensor by itself, for a report or for clipping by it: one workgroup a tensor, from the partials of the
// read pass.

// The tiles of a tensor: a run of them, and another if its end is read in another way.
struct Range {
    first_tile: u32,
    tile_count: u32,
    rest_tile: u32,
    rest_count: u32,
}

struct Norms {
    tensor_count: u32,
    // The tiles of a format lie together: f32 first, f16 from here, bf16 from there.
    first_f16: u32,
    first_bf16: u32,
}

@group(0) @binding(0) var<storage, read> ranges: array<Range>;
@group(0) @binding(1) var<storage, read> partials: array<Partial>;
@group(0) @binding(2) var<storage, read_write> clips: array<TensorClip>;
@group(0) @binding(3) var<uniform> info: Norms;
// The loss scale, as f32 bits.
@group(1) @binding(1) var<uniform> loss_scale: vec4<u32>;

var<workgroup> tensor_largest: atomic<u32>;

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
        atomicStore(&tensor_largest, 0u);
    }
    workgroupBarrier();
    let range = ranges[tensor];
    let format = format_of(range.first_tile);
    let is_f16 = format == 1u;
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    for (var tile = lane; tile < range.tile_count + range.rest_count; tile += THREADS) {
        let rest = range.rest_tile + tile - range.tile_count;
        let part = partials[select(range.first_tile + tile, rest, tile >= range.tile_count)];
        atomicMax(&tensor_largest, part.largest);
        if is_f16 {
            sum = add_f16_tile(sum, part);
        } else {
            sum = add_tile(sum, part, limit.norm_type);
        }
    }
    var all = add_up(lane, sum);
    if lane == 0u {
        let largest = atomicLoad(&tensor_largest);
        let inverse = r24_div(R24_ONE, r24_from_bits(loss_scale.x));
        var f16 = vec4<u32>(0u);
        if is_f16 {
            f16 = whole_sum(all.low, all.high);
            all = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
        }
        let norm = r24_mul(norm_scaled(all, f16, limit.norm_type, largest), inverse);
        clips[tensor].norm_significand = select(norm.significand, NO_NORM, largest >= NONFINITE);
        clips[tensor].norm_exponent = norm.exponent;
        clips[tensor].largest = largest;
        clips[tensor].run = 0u;
        clips[tensor].format = format;
    }
}

fn format_of(tile: u32) -> u32 {
    return u32(tile >= info.first_f16) + u32(tile >= info.first_bf16);
}
