// Adds up the partials of one part of a sharded set, for the host to merge with those of the others. One workgroup.
// Integers only.

@group(0) @binding(0) var<storage, read> partials: array<Partial>;
@group(0) @binding(1) var<storage, read_write> shard: Shard;
// Per format the largest finite magnitude of what is scaled, then the largest of what counts in the norm.
var<workgroup> largest: array<atomic<u32>, 4>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 4u {
        atomicStore(&largest[lane], 0u);
    }
    workgroupBarrier();
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    var f16 = sum;
    var count_low = vec4<u32>(0u);
    var count_high = vec4<u32>(0u);
    for (var tile = lane; tile < finish.tile_count; tile += THREADS) {
        let part = partials[tile];
        if part.largest < NONFINITE {
            let role = role_of(tile);
            if role != COUNTED_ONLY {
                atomicMax(&largest[format_of(tile)], part.largest);
            }
            if role != SCALED_ONLY {
                atomicMax(&largest[3], part.largest);
                if format_of(tile) == F16 {
                    f16 = add_f16_tile(f16, part);
                } else {
                    sum = add_tile(sum, part, params.norm_type);
                }
            }
        }
        let counts = vec4<u32>(part.nan, part.pos_inf, part.neg_inf, 0u);
        count_low += counts;
        count_high += vec4<u32>(count_low < counts);
    }
    let all_f16 = add_up_f16(lane, f16);
    let all = add_up(lane, sum);
    if lane == 0u {
        shard.low = all.low;
        shard.high = all.high;
        shard.f16 = all_f16;
        shard.top = all.top;
    }
    workgroupBarrier();
    low[lane] = count_low;
    high[lane] = count_high;
    add_lanes(lane);
    if lane == 0u {
        shard.count_low = low[0];
        shard.count_high = high[0];
        shard.ticket = params.ticket;
        let scale = select(params.scale, scaler.x, told(SCALE_OF_SCALER));
        shard.scale = scale;
        let most = vec4<u32>(
            atomicLoad(&largest[0]),
            atomicLoad(&largest[1]),
            atomicLoad(&largest[2]),
            atomicLoad(&largest[3]),
        );
        shard.largest = most;
        let inverse = r24_inverse_product(r24_from_bits(scale), r24_from_bits(params.divisor));
        // Without a write there is no format that a result could overflow.
        shard.overflow = u32(
            told(IN_PLACE)
                && (multiply_bits(most.x, inverse) >= OVERFLOW[0]
                    || multiply_bits(most.y, inverse) >= OVERFLOW[1]
                    || multiply_bits(most.z, inverse) >= OVERFLOW[2]),
        );
    }
}
