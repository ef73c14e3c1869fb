// f16, widened with integers because a driver may flush what it converts.

// One element of each word (half 0: the lower) without its sign, in a form that orders like its magnitude.
fn unsigned(words: vec4<u32>, half: u32) -> vec4<u32> {
    return (words >> vec4<u32>(16u * half)) & vec4<u32>(0x7fffu);
}

// f32 bits of a finite element's magnitude.
fn widen(element: vec4<u32>) -> vec4<u32> {
    let normal = (element << vec4<u32>(13u)) + vec4<u32>(0x38000000u);
    // 2^-14 * (1 + m / 1024) - 2^-14 is exact, and a normal f32 where m is not 0. From 2^-14 on it is no less than `normal`:
    // twice that, less 2^-14.
    let subnormal = bitcast<vec4<f32>>(normal + vec4<u32>(0x800000u)) - vec4<f32>(6.103515625e-5);
    return min(normal, bitcast<vec4<u32>>(subnormal));
}

// f32 bits of any element's magnitude: 0x7f800000 for infinity, more for NaN.
fn widen_any(element: u32) -> u32 {
    return widen(vec4<u32>(element)).x + select(0u, 0x38000000u, element >= 0x7c00u);
}
