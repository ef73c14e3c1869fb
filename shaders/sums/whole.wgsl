// The sums of a thread for f16: all of every term. A finite f16 has so few binades that nothing need be dropped, and only
// the sum has to be right, not a digit of each element: so terms go into accumulators of coarse floats, and what one of
// them rounds off goes into the next.

// Of each accumulator what it holds, in units of its last bit, modulo 2^32. All but the first have signs.
struct Sums {
    columns: vec4<u32>,
}

// Whether a block with this largest magnitude has to be taken one element at a time.
fn by_hand(sums: Sums, peak: u32) -> bool {
    return peak >= NONFINITE;
}

// Eight terms for each of the four lanes of each accumulator, which is what they have room for.
fn add_block(sums: Sums, block: Block, peak: u32) -> Sums {
    var held = EMPTY;
    for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
        held = put(held, magnitudes(block.a, half));
        held = put(held, magnitudes(block.b, half));
        held = put(held, magnitudes(block.c, half));
        held = put(held, magnitudes(block.d, half));
    }
    return Sums(sums.columns + taken(held));
}

fn magnitudes(words: vec4<u32>, half: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(widen(unsigned(words, half)));
}

// The bits of an accumulator's four lanes, added up. They are those of what it was empty with, and what it holds in units of
// its last bit.
fn lanes(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v);
    return (bits.x + bits.y) + (bits.z + bits.w);
}

// A block is taken by hand for something nonfinite only, and then the tile's sums mean nothing.
fn add_one(sums: Sums, magnitude: u32) -> Sums {
    return sums;
}

// The columns, each moved up by 2^31 so that it has no sign; all threads do, which is 2^39 in the partial.
fn digits_of(sums: Sums, tile_max: u32) -> vec4<u32> {
    return sums.columns + vec4<u32>(0x80000000u);
}
