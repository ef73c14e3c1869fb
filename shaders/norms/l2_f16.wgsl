// What an L2 norm adds up of f16: squares, exact in f32, from 2^-48 to 2^32. Four accumulators, whose last bits are 2^12,
// 2^-8, 2^-28 and 2^-48, kept in their binades by what they are empty with: 2^23 times the last bit, and half as much again
// where the rest has a sign.
//
// They have room for 8 additions: a square is below 2^20 last bits of the first, and what one rounds off is at most half
// its last bit, 2^19 of the next.

struct Held {
    h0: f32,
    h1: f32,
    h2: f32,
    h3: f32,
}

// 2^35, 1.5 * 2^15, 1.5 * 2^-5, 1.5 * 2^-25.
const EMPTY = Held(34359738368.0, 49152.0, 0.046875, 4.4703483581542969e-8);

// All is exact but the sums that are fenced. Without the fence a compiler may find that what was rounded off is 0.
fn put(held: Held, x: f32) -> Held {
    let v = fence(x * x);
    let s0 = fence(held.h0 + v);
    let r1 = v - (s0 - held.h0);
    let s1 = fence(held.h1 + r1);
    let r2 = r1 - (s1 - held.h1);
    let s2 = fence(held.h2 + r2);
    let r3 = r2 - (s2 - held.h2);
    return Held(s0, s1, s2, held.h3 + r3);
}

// What they hold, in units of their last bits: the bits of each, without those of an empty one.
fn taken(held: Held) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(vec4<f32>(held.h0, held.h1, held.h2, held.h3));
    return bits - vec4<u32>(0x51000000u, 0x47400000u, 0x3d400000u, 0x33400000u);
}
