// How f32 elements are written.

// One element of each word that is written, without its sign: as `unsigned`, which is for words that were read, so that no
// product is mistaken for one.
fn stored(words: vec4<u32>, half: u32) -> vec4<u32> {
    return words & vec4<u32>(0x7fffffffu);
}

// As `stored` gives it.
const SMALLEST_NORMAL = 0x800000u;

// The new word's bits of one element, from its new magnitude and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    return magnitude | (words & vec4<u32>(0x80000000u));
}

// The new word's bits of one element, from the old word, by one hardware multiply; at most `value`.
fn multiply(words: vec4<u32>, half: u32, factor: f32, value: u32) -> vec4<u32> {
    return clip(bitcast<vec4<u32>>(bitcast<vec4<f32>>(words) * factor), value);
}

// Where a hardware product is not to be trusted: what is not 0 and below `tiny` may be flushed, or its product.
fn suspect(words: vec4<u32>, half: u32, tiny: u32) -> vec4<bool> {
    return unsigned(words, half) - vec4<u32>(1u) < vec4<u32>(tiny - 1u);
}
