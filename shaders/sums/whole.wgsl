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

// Adds a block also where something in it is nonfinite: no branch is cheaper than one, and the tile's sums mean nothing then.
fn add_block(sums: Sums, block: Block, peak: u32) -> Sums {
    var columns = sums.columns;
    columns += eight(vec4<u32>(block.a.x, block.b.x, block.c.x, block.d.x));
    columns += eight(vec4<u32>(block.a.y, block.b.y, block.c.y, block.d.y));
    columns += eight(vec4<u32>(block.a.z, block.b.z, block.c.z, block.d.z));
    columns += eight(vec4<u32>(block.a.w, block.b.w, block.c.w, block.d.w));
    return Sums(columns);
}

// The terms of four words, which is what accumulators have room for. One after the other: accumulators for all sixteen words
// at once would not fit registers.
fn eight(words: vec4<u32>) -> vec4<u32> {
    let lower = bitcast<vec4<f32>>(widen(unsigned(words, 0u)));
    let upper = bitcast<vec4<f32>>(widen(unsigned(words, 1u)));
    var held = EMPTY;
    held = put(held, lower.x);
    held = put(held, lower.y);
    held = put(held, lower.z);
    held = put(held, lower.w);
    held = put(held, upper.x);
    held = put(held, upper.y);
    held = put(held, upper.z);
    held = put(held, upper.w);
    return taken(held);
}

// Stops the compiler from reordering a rounded sum with what follows.
fn fence(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ dispatch.zero);
}

// A block is taken by hand for something nonfinite only, and then the tile's sums mean nothing.
fn add_one(sums: Sums, magnitude: u32) -> Sums {
    return sums;
}

// The columns, each moved up by 2^31 so that it has no sign; all threads do, which is 2^39 in the partial.
fn digits_of(sums: Sums, tile_max: u32) -> vec4<u32> {
    return sums.columns + vec4<u32>(0x80000000u);
}
