// Four words at a time: a thread's quads lie THREADS apart, so that neighbours read neighbours.

// The thread's word number `i` of 16.
fn place_of(start: u32, lane: u32, i: u32) -> u32 {
    return start + 4u * (lane + i / 4u * THREADS) + i % 4u;
}
