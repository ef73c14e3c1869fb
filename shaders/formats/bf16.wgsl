// bf16: the upper half of an f32.

// One element of each word (half 0: the lower) without its sign, in a form that orders like its magnitude.
fn unsigned(words: vec4<u32>, half: u32) -> vec4<u32> {
    return (words << vec4<u32>(16u - 16u * half)) & vec4<u32>(0x7fff0000u);
}

// f32 bits of a finite element's magnitude.
fn widen(element: vec4<u32>) -> vec4<u32> {
    return element;
}

// f32 bits of any element's magnitude: 0x7f800000 for infinity, more for NaN.
fn widen_any(element: u32) -> u32 {
    return element;
}
