// Adds up the partials, takes the one square root, and decides: norm, clip coefficient, factor, whether to skip.
// One workgroup. Integers only.

// Per format the largest magnitude of what is scaled.
var<workgroup> largest: array<atomic<u32>, 3>;
// The largest magnitude of all, and of what counts in the norm.
var<workgroup> largest_of_all: atomic<u32>;
var<workgroup> largest_counted: atomic<u32>;
var<workgroup> nonfinite: u32;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 3u {
        atomicStore(&largest[lane], 0u);
    }
    if lane == 0u {
        atomicStore(&largest_of_all, 0u);
        atomicStore(&largest_counted, 0u);
    }
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    var f16 = sum;
    var most = vec3<u32>(0u);
    var most_of_all = 0u;
    var most_counted = 0u;
    for (var tile = lane; tile < finish.tile_count; tile += THREADS) {
        let part = partials[tile];
        let format = format_of(tile);
        let role = role_of(tile);
        most_of_all = max(most_of_all, part.largest);
        if role != COUNTED_ONLY {
            let of_format = vec3<u32>(format) == vec3<u32>(0u, 1u, 2u);
            most = max(most, select(vec3<u32>(0u), vec3<u32>(part.largest), of_format));
        }
        if role != SCALED_ONLY {
            most_counted = max(most_counted, part.largest);
            if format == F16 {
                f16 = add_f16_tile(f16, part);
            } else {
                sum = add_tile(sum, part, params.norm_type);
            }
        }
    }
    workgroupBarrier();
    for (var format = 0u; format < 3u; format += 1u) {
        atomicMax(&largest[format], most[format]);
    }
    atomicMax(&largest_of_all, most_of_all);
    atomicMax(&largest_counted, most_counted);
    let all_f16 = add_up_f16(lane, f16);
    let all = add_up(lane, sum);
    let found = atomicLoad(&largest_of_all) >= NONFINITE;
    if lane == 0u {
        nonfinite = u32(found);
        decide(found, norm_scaled(all, all_f16, params.norm_type, atomicLoad(&largest_counted)));
    }
    if workgroupUniformLoad(&nonfinite) != 0u {
        take_census(lane);
    }
}

// Whether the largest magnitude of some format would round to infinity there.
fn overflows(coefficient: R24, factor: R24) -> bool {
    return multiply_bits(atomicLoad(&largest[0]), factor) >= OVERFLOW[0]
        || multiply_bits(atomicLoad(&largest[1]), factor) >= OVERFLOW[1]
        || multiply_bits(atomicLoad(&largest[2]), factor) >= OVERFLOW[2];
}
