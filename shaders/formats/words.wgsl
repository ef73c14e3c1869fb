// Word by word: a thread's words lie THREADS apart, so that neighbours read neighbours.

// The thread's word number `i` of 16.
fn place_of(start: u32, lane: u32, i: u32) -> u32 {
    return start + lane + i * THREADS;
}
