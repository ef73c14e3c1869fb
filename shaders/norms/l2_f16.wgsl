// What an L2 norm adds up of f16: squares, exact in f32, from 2^-48 to 2^32. Four accumulators, whose last bits are 2^12,
// 2^-8, 2^-28 and 2^-48, kept in their binades by what they are empty with: 2^23 times the last bit, and half as much again
// where the rest has a sign.
//
// They have room for 8 additions: a square is below 2^20 last bits of the first, and what one rounds off is at most half
// its last bit, 2^19 of the next.

struct Held {
    h0: vec4<f32>,
    h1: vec4<f32>,
    h2: vec4<f32>,
    h3: vec4<f32>,
}

// 2^35, 1.5 * 2^15, 1.5 * 2^-5, 1.5 * 2^-25.
const EMPTY = Held(
    vec4<f32>(34359738368.0),
    vec4<f32>(49152.0),
    vec4<f32>(0.046875),
    vec4<f32>(4.4703483581542969e-8),
);

// All is exact but the sums that are fenced. Without the fence a compiler may find that what was rounded off is 0.
fn put(held: Held, x: vec4<f32>) -> Held {
    let v = fence(x * x);
    let s0 = fence(held.h0 + v);
    let r1 = v - (s0 - held.h0);
    let s1 = fence(held.h1 + r1);
    let r2 = r1 - (s1 - held.h1);
    let s2 = fence(held.h2 + r2);
    let r3 = r2 - (s2 - held.h2);
    return Held(s0, s1, s2, held.h3 + r3);
}

// What four lanes hold: their bits, without those of empty ones.
fn taken(held: Held) -> vec4<u32> {
    let empty = vec4<u32>(0x44000000u, 0x1d000000u, 0xf5000000u, 0xcd000000u);
    return vec4<u32>(lanes(held.h0), lanes(held.h1), lanes(held.h2), lanes(held.h3)) - empty;
}
