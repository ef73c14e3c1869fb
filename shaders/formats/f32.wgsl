// f32: one element a word.

const ELEMENTS_PER_WORD = 1u;

// One element of each word without its sign, in a form that orders like its magnitude.
fn unsigned(words: vec4<u32>, half: u32) -> vec4<u32> {
    return words & vec4<u32>(0x7fffffffu);
}

// f32 bits of a finite element's magnitude.
fn widen(element: vec4<u32>) -> vec4<u32> {
    return element;
}

// f32 bits of any element's magnitude: 0x7f800000 for infinity, more for NaN.
fn widen_any(element: u32) -> u32 {
    return element;
}

// The largest element of each word, as `unsigned` gives it.
fn larger(words: vec4<u32>) -> vec4<u32> {
    return unsigned(words, 0u);
}
