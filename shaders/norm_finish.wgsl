// Adds up the partials, takes the one square root, and decides: norm, clip coefficient, factor, found_inf.
// One workgroup. Integers only.

// The loss scale, as f32 bits.
@group(1) @binding(1) var<uniform> loss_scale: vec4<u32>;

// Per format the largest magnitude.
var<workgroup> largest: array<atomic<u32>, 3>;
var<workgroup> nonfinite: u32;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 3u {
        atomicStore(&largest[lane], 0u);
    }
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    var f16 = sum;
    var most = vec3<u32>(0u);
    for (var tile = lane; tile < finish.tile_count; tile += THREADS) {
        let part = partials[tile];
        let format = format_of(tile);
        most = max(most, select(vec3<u32>(0u), vec3<u32>(part.largest), vec3<u32>(format) == vec3<u32>(0u, 1u, 2u)));
        if is_f16(tile) {
            f16 = add_f16_tile(f16, part);
        } else {
            sum = add_tile(sum, part, limit.norm_type);
        }
    }
    workgroupBarrier();
    for (var format = 0u; format < 3u; format += 1u) {
        atomicMax(&largest[format], most[format]);
    }
    let all_f16 = add_up_f16(lane, f16);
    let all_sum = add_up(lane, sum);
    let all = vec3<u32>(atomicLoad(&largest[0]), atomicLoad(&largest[1]), atomicLoad(&largest[2]));
    let peak = max(max(all.x, all.y), all.z);
    if lane == 0u {
        nonfinite = u32(peak >= NONFINITE);
        decide(loss_scale.x, peak >= NONFINITE, norm_scaled(all_sum, all_f16, limit.norm_type, peak));
    }
    if workgroupUniformLoad(&nonfinite) != 0u {
        take_census(lane);
    }
}

fn is_f16(tile: u32) -> bool {
    return format_of(tile) == 1u;
}

// Whether the largest magnitude of some format would round to infinity there.
fn overflows(coefficient: R24, factor: R24) -> bool {
    return multiply_bits(atomicLoad(&largest[0]), factor) >= OVERFLOW[0]
        || multiply_bits(atomicLoad(&largest[1]), factor) >= OVERFLOW[1]
        || multiply_bits(atomicLoad(&largest[2]), factor) >= OVERFLOW[2];
}
