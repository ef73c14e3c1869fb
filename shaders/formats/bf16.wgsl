// bf16: two elements a word, each the upper half of an f32.

const ELEMENTS_PER_WORD = 2u;

// Magnitudes of one element of each word (half 0: the lower), as f32 bits; nonfinite ones are at least 0x7f800000.
fn magnitudes(words: vec4<u32>, half: u32) -> vec4<u32> {
    return (words << vec4<u32>(16u - 16u * half)) & vec4<u32>(0x7fff0000u);
}

// The new word's bits of one element, from its new magnitude (f32 bits, below bf16's overflow) and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    let upper = magnitude + vec4<u32>(0x7fffu) + ((magnitude >> vec4<u32>(16u)) & vec4<u32>(1u));
    let sign = words & (vec4<u32>(0x8000u) << vec4<u32>(16u * half));
    return (((upper >> vec4<u32>(16u)) & vec4<u32>(0xffffu)) << vec4<u32>(16u * half)) | sign;
}
