// Reads every gradient once and leaves one partial per tile: the exact sum of terms (squares, or magnitudes for an L1
// norm), the largest magnitude, and what was not finite.
//
// How a thread adds up is in sums/. Blocks of words with something nonfinite, or that the sums want by hand, are left for a
// second loop that takes one element at a time.

@group(0) @binding(1) var<storage, read_write> partials: array<Partial>;

var<workgroup> tile_largest: atomic<u32>;
var<workgroup> tile_nan: atomic<u32>;
var<workgroup> tile_pos_inf: atomic<u32>;
var<workgroup> tile_neg_inf: atomic<u32>;
var<workgroup> tile_first: atomic<u32>;
// Each thread's digit sums.
var<workgroup> thread_digits: array<vec4<u32>, 256>;
// Sums of their lower 16 bits, then of their upper 16.
var<workgroup> halves: array<vec4<u32>, 32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group.x + group.y * groups.x;
    if index >= dispatch.tile_count {
        return;
    }
    let tile = find_tile(index);
    if lane == 0u {
        atomicStore(&tile_largest, 0u);
        atomicStore(&tile_nan, 0u);
        atomicStore(&tile_pos_inf, 0u);
        atomicStore(&tile_neg_inf, 0u);
        atomicStore(&tile_first, NO_ELEMENT);
    }
    workgroupBarrier();

    var largest = 0u;
    var sums = Sums();
    // A bit per block. A tile has 32 at most.
    var left = 0u;
    var bit = 1u;
    for (var start = tile.begin; start < tile.end; start += BLOCK_WORDS) {
        let places = block_places(start, lane);
        let words = read_block(tile, places);
        let block = Block(
            keep(tile, places.a, words.a),
            keep(tile, places.b, words.b),
            keep(tile, places.c, words.c),
            keep(tile, places.d, words.d),
        );
        let most_ab = max(larger(block.a), larger(block.b));
        let most_cd = max(larger(block.c), larger(block.d));
        let most = max(most_ab, most_cd);
        let most_pair = max(most.xy, most.zw);
        let peak = widen_any(max(most_pair.x, most_pair.y));
        largest = max(largest, peak);
        left |= select(0u, bit, by_hand(sums, peak));
        sums = add_block(sums, block, peak);
        bit = bit << 1u;
    }
    for (; left != 0u; left &= left - 1u) {
        let start = tile.begin + firstTrailingBit(left) * BLOCK_WORDS;
        for (var k = 0u; k < LANE_WORDS; k += 1u) {
            let at = place_of(start, lane, k);
            if at < tile.end {
                let word = keep(tile, vec4<u32>(at), vec4<u32>(read_word(tile.slot, at))).x;
                for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
                    let index = (at - tile.begin) * ELEMENTS_PER_WORD + half;
                    sums = take_one(sums, word, half, index);
                }
            }
        }
    }
    atomicMax(&tile_largest, largest);
    workgroupBarrier();

    let tile_max = atomicLoad(&tile_largest);
    thread_digits[lane] = digits_of(sums, tile_max);
    workgroupBarrier();
    // Sixteen threads add up sixteen each, then one what they found. In 16-bit halves, 256 of which fit a word. The
    // others are kept out by the loops' bounds and not by a branch, of which a CPU driver runs both sides.
    let count = select(0u, THREADS, lane < 16u);
    var lower = vec4<u32>(0u);
    var upper = vec4<u32>(0u);
    for (var i = lane; i < count; i += 16u) {
        lower += thread_digits[i] & vec4<u32>(0xffffu);
        upper += thread_digits[i] >> vec4<u32>(16u);
    }
    if lane < 16u {
        halves[lane] = lower;
        halves[lane + 16u] = upper;
    }
    workgroupBarrier();
    let last_count = select(0u, 16u, lane == 0u);
    var all_lower = vec4<u32>(0u);
    var all_upper = vec4<u32>(0u);
    for (var i = 0u; i < last_count; i += 1u) {
        all_lower += halves[i];
        all_upper += halves[i + 16u];
    }
    if lane == 0u {
        let low = all_lower + (all_upper << vec4<u32>(16u));
        let high = (all_upper >> vec4<u32>(16u)) + vec4<u32>(low < all_lower);
        partials[tile.index] = Partial(
            tile_max,
            low.x,
            low.y,
            low.z,
            low.w,
            high.x | (high.y << 8u) | (high.z << 16u) | (high.w << 24u),
            atomicLoad(&tile_nan),
            atomicLoad(&tile_pos_inf),
            atomicLoad(&tile_neg_inf),
            atomicLoad(&tile_first),
        );
    }
}

// One element, whatever it is.
fn take_one(sums: Sums, word: u32, half: u32, index: u32) -> Sums {
    let magnitude = widen_any(unsigned(vec4<u32>(word), half).x);
    if magnitude >= NONFINITE {
        let sign = (word >> (32u / ELEMENTS_PER_WORD * (half + 1u) - 1u)) & 1u;
        if magnitude > NONFINITE {
            atomicAdd(&tile_nan, 1u);
        } else if sign == 0u {
            atomicAdd(&tile_pos_inf, 1u);
        } else {
            atomicAdd(&tile_neg_inf, 1u);
        }
        atomicMin(&tile_first, index);
        return sums;
    }
    return add_one(sums, magnitude);
}
