// Multiplies every gradient by its factor, in place: one rounding to f32, then one into the format. Where factor and
// limit of an element come from stands in factors/.
//
// One hardware multiply is right unless what it reads or returns lies near the smallest normal, where the unit may flush
// it, or the factor lies outside f32. A thread that meets such an element leaves the block of words for a second loop that
// multiplies with integers.

// Beyond every tile.
const NO_PLACE = 0xffffffffu;

struct Scaled {
    words: vec4<u32>,
    suspect: vec4<bool>,
}

fn scale_words(words: vec4<u32>, work: Work, tiny: u32) -> Scaled {
    var scaled = Scaled(vec4<u32>(0u), vec4<bool>(false));
    for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
        scaled.words |= multiply(words, half, work.factor, work.clip_value);
        scaled.suspect |= suspect(words, half, tiny);
    }
    return scaled;
}

// The f32 bits below which a magnitude or its product with the factor is no safe normal number: 2^-125 over the power of
// two in the factor, and never less than 2^-126.
fn tiny_magnitude(factor_exponent: i32) -> u32 {
    let exponent = -125 - (factor_exponent + 23) + 127;
    return u32(clamp(exponent, 1, 255)) << 23u;
}

fn scale_word_exactly(word: u32, work: Work) -> u32 {
    let factor = R24(work.factor_significand, work.factor_exponent);
    var scaled = 0u;
    for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
        let product = multiply_bits(widen(unsigned(vec4<u32>(word), half)).x, factor);
        scaled |= place(clip(vec4<u32>(product), work.clip_value), vec4<u32>(word), half).x;
    }
    return scaled;
}

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
    let work = work_of(tile);
    if work.apply == 0u {
        return;
    }
    let exact = work.apply == 2u;
    let tiny = tiny_magnitude(work.factor_exponent);
    // A bit per block. A tile has 32 at most.
    var left = 0u;
    var bit = 1u;
    for (var start = tile.begin; start < tile.end; start += BLOCK_WORDS) {
        let places = block_places(start, lane);
        let words = read_block(tile, places);
        let a = scale_words(words.a, work, tiny);
        let b = scale_words(words.b, work, tiny);
        let c = scale_words(words.c, work, tiny);
        let d = scale_words(words.d, work, tiny);
        if exact || any(a.suspect | b.suspect | c.suspect | d.suspect) {
            left |= bit;
        } else {
            let scaled = Block(
                merge(tile, places.a, words.a, a.words),
                merge(tile, places.b, words.b, b.words),
                merge(tile, places.c, words.c, c.words),
                merge(tile, places.d, words.d, d.words),
            );
            write_block(tile, places, scaled);
            tally(tile, places.a, words.a, scaled.a);
            tally(tile, places.b, words.b, scaled.b);
            tally(tile, places.c, words.c, scaled.c);
            tally(tile, places.d, words.d, scaled.d);
        }
        bit = bit << 1u;
    }
    for (; left != 0u; left &= left - 1u) {
        let start = tile.begin + firstTrailingBit(left) * BLOCK_WORDS;
        for (var k = 0u; k < LANE_WORDS; k += 1u) {
            let at = place_of(start, lane, k);
            if at < tile.end {
                let word = read_word(tile.slot, at);
                let scaled = merge(tile, vec4<u32>(at), vec4<u32>(word), vec4<u32>(scale_word_exactly(word, work)));
                write_word(tile.slot, at, scaled.x);
                tally(tile, vec4<u32>(at, vec3<u32>(NO_PLACE)), vec4<u32>(word), scaled);
            }
        }
    }
}
