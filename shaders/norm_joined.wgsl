// Decides for one of several sets of one device under one norm, from the ledgers of all. One workgroup a set, all of which
// come to the same decision. Integers only.

struct Slot {
    shard: Shard,
    room: array<vec4<u32>, 9>,
}

@group(0) @binding(4) var<storage, read> joined: array<Slot>;

// Per format the largest magnitude of what is scaled, then the largest of what counts in the norm.
var<workgroup> largest: array<atomic<u32>, 4>;
var<workgroup> found: atomic<u32>;
var<workgroup> nonfinite: u32;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 4u {
        atomicStore(&largest[lane], 0u);
    }
    if lane == 0u {
        atomicStore(&found, 0u);
    }
    workgroupBarrier();
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    var f16 = vec4<u32>(0u);
    if lane == 0u {
        for (var member = 0u; member < params.joined; member += 1u) {
            f16 = wide_128_add(f16, joined[member].shard.f16);
        }
    }
    for (var member = lane; member < params.joined; member += THREADS) {
        let shard = joined[member].shard;
        for (var i = 0u; i < 4u; i += 1u) {
            atomicMax(&largest[i], shard.largest[i]);
        }
        if any((shard.count_low | shard.count_high) != vec4<u32>(0u)) {
            atomicStore(&found, 1u);
        }
        sum = add_sums(sum, Sum(shard.top, shard.low, shard.high));
    }
    let all = add_up(lane, sum);
    if lane == 0u {
        nonfinite = atomicLoad(&found);
        decide(atomicLoad(&found) != 0u, norm_scaled(all, f16, params.norm_type, atomicLoad(&largest[3])));
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
