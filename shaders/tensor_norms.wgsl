// The norm of each tensor by itself, for a report or for clipping by it: one workgroup a tensor, from the partials of the
// read pass.

// The tiles of a tensor: a run of them, and another if its end is read in another way.
struct Range {
    first_tile: u32,
    tile_count: u32,
    rest_tile: u32,
    rest_count: u32,
}

@group(0) @binding(0) var<storage, read> ranges: array<Range>;
@group(0) @binding(1) var<storage, read> partials: array<Partial>;
@group(0) @binding(2) var<storage, read_write> clips: array<TensorClip>;
// What norm_finish left of the step.
@group(0) @binding(4) var<storage, read> head: Head;

var<workgroup> tensor_largest: atomic<u32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let tensor = group.x + group.y * groups.x;
    if tensor >= finish.tensor_count {
        return;
    }
    if lane == 0u {
        atomicStore(&tensor_largest, 0u);
    }
    workgroupBarrier();
    let range = ranges[tensor];
    let is_f16 = format_of(range.first_tile) == F16;
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    for (var tile = lane; tile < range.tile_count + range.rest_count; tile += THREADS) {
        let rest = range.rest_tile + tile - range.tile_count;
        let part = partials[select(range.first_tile + tile, rest, tile >= range.tile_count)];
        atomicMax(&tensor_largest, part.largest);
        if is_f16 {
            sum = add_f16_tile(sum, part);
        } else {
            sum = add_tile(sum, part, params.norm_type);
        }
    }
    var all = add_up(lane, sum);
    if lane == 0u {
        let largest = atomicLoad(&tensor_largest);
        let inverse = R24(head.own.inverse_significand, head.own.inverse_exponent);
        var f16 = vec4<u32>(0u);
        if is_f16 {
            f16 = whole_sum(all.low, all.high);
            all = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
        }
        let norm = r24_mul(norm_scaled(all, f16, params.norm_type, largest), inverse);
        clips[tensor].norm_significand = select(norm.significand, NO_NORM, largest >= NONFINITE);
        clips[tensor].norm_exponent = norm.exponent;
        clips[tensor].largest = largest;
        clips[tensor].run = 0u;
        clips[tensor].kind = class_of(range.first_tile);
    }
}
