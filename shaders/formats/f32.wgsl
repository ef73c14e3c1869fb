// f32: one element a word.

const ELEMENTS_PER_WORD = 1u;

// Magnitudes of one element of each word, as f32 bits; nonfinite ones are at least 0x7f800000.
fn magnitudes(words: vec4<u32>, half: u32) -> vec4<u32> {
    return words & vec4<u32>(0x7fffffffu);
}

// The new word's bits of one element, from its new magnitude and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    return magnitude | (words & vec4<u32>(0x80000000u));
}
