// What one part of a sharded set, or one of several sets under one norm, adds to the whole.
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
    // 1: a gradient divided by the scale would not fit its format, in which it would be written.
    overflow: u32,
    // Per format the largest finite magnitude of what is scaled, and the largest of what counts in the norm.
    largest: vec4<u32>,
}
