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

// The new word's bits of one element, from its new magnitude (f32 bits, below bf16's overflow) and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    // To nearest, ties to even.
    let upper = magnitude + vec4<u32>(0x7fffu) + ((magnitude >> vec4<u32>(16u)) & vec4<u32>(1u));
    let shift = vec4<u32>(16u * half);
    return (((upper >> vec4<u32>(16u)) & vec4<u32>(0xffffu)) << shift) | (words & (vec4<u32>(0x8000u) << shift));
}

// Where a hardware product is not to be trusted: near the smallest normal the unit may flush what it reads or writes.
fn suspect(product: vec4<u32>, magnitude: vec4<u32>) -> vec4<bool> {
    return (product < vec4<u32>(0x1000000u)) & (magnitude != vec4<u32>(0u));
}
