// Adds up the partials of one part of a sharded set, for the host to merge with those of the others. One workgroup.
// Integers only.

struct Source {
    tile_count: u32,
    // The tiles of a format lie together: f32 first, f16 from here, bf16 from there.
    first_f16: u32,
    first_bf16: u32,
}

struct Shard {
    // Digit sums of four cells, highest first: low and high words.
    low: vec4<u32>,
    high: vec4<u32>,
    // The whole sum of f16, highest word first.
    f16: vec4<u32>,
    // Counts of NaN, +inf and -inf.
    count_low: vec4<u32>,
    count_high: vec4<u32>,
    // Of the recording that this is the ledger of.
    ticket: u32,
    // The loss scale, as f32 bits.
    scale: u32,
    // The highest of the four cells.
    top: u32,
    // 1: a gradient divided by the scale would not fit its format.
    overflow: u32,
}

@group(0) @binding(0) var<storage, read> partials: array<Partial>;
@group(0) @binding(1) var<storage, read_write> shard: Shard;
@group(0) @binding(2) var<uniform> source: Source;
// The loss scale, as f32 bits.
@group(1) @binding(1) var<uniform> loss_scale: vec4<u32>;

// Per format the largest finite magnitude.
var<workgroup> largest: array<atomic<u32>, 3>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane < 3u {
        atomicStore(&largest[lane], 0u);
    }
    workgroupBarrier();
    var sum = Sum(0u, vec4<u32>(0u), vec4<u32>(0u));
    var f16 = sum;
    var count_low = vec4<u32>(0u);
    var count_high = vec4<u32>(0u);
    for (var tile = lane; tile < source.tile_count; tile += THREADS) {
        let part = partials[tile];
        if part.largest < NONFINITE {
            let format = format_of(tile);
            atomicMax(&largest[format], part.largest);
            if format == 1u {
                f16 = add_f16_tile(f16, part);
            } else {
                sum = add_tile(sum, part, limit.norm_type);
            }
        }
        let counts = vec4<u32>(part.nan, part.pos_inf, part.neg_inf, 0u);
        count_low += counts;
        count_high += vec4<u32>(count_low < counts);
    }
    let all_f16 = add_up_f16(lane, f16);
    let all_sum = add_up(lane, sum);
    if lane == 0u {
        shard.low = all_sum.low;
        shard.high = all_sum.high;
        shard.f16 = all_f16;
    }
    workgroupBarrier();
    low[lane] = count_low;
    high[lane] = count_high;
    add_lanes(lane);
    if lane == 0u {
        shard.count_low = low[0];
        shard.count_high = high[0];
        shard.ticket = limit.ticket;
        shard.scale = loss_scale.x;
        shard.top = all_sum.top;
        let inverse = r24_div(R24_ONE, r24_from_bits(loss_scale.x));
        shard.overflow = u32(
            multiply_bits(atomicLoad(&largest[0]), inverse) >= OVERFLOW[0]
                || multiply_bits(atomicLoad(&largest[1]), inverse) >= OVERFLOW[1]
                || multiply_bits(atomicLoad(&largest[2]), inverse) >= OVERFLOW[2],
        );
    }
}

fn format_of(tile: u32) -> u32 {
    return u32(tile >= source.first_f16) + u32(tile >= source.first_bf16);
}
