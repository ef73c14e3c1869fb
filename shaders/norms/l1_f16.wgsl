// What an L1 norm adds up of f16: magnitudes, from 2^-24 to 2^16. Two accumulators, whose last bits are 2^-4 and 2^-24, are
// the last two of the four columns; l2_f16.wgsl says how they work. They have room for 8 additions: a magnitude is below
// 2^20 last bits of the first, and what that rounds off is at most 2^19 of the second.

struct Held {
    h2: f32,
    h3: f32,
}

// 2^19, 1.5 / 2.
const EMPTY = Held(524288.0, 0.75);

fn put(held: Held, x: f32) -> Held {
    let v = fence(x);
    let s2 = fence(held.h2 + v);
    let r3 = v - (s2 - held.h2);
    return Held(s2, held.h3 + r3);
}

// What they hold, in units of their last bits: the bits of each, without those of an empty one.
fn taken(held: Held) -> vec4<u32> {
    return vec4<u32>(0u, 0u, bitcast<u32>(held.h2) - 0x49000000u, bitcast<u32>(held.h3) - 0x3f400000u);
}
