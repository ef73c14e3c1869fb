// f16, widened and narrowed with integers because a driver may flush or round a conversion as it likes.

// One element of each word (half 0: the lower) without its sign, in a form that orders like its magnitude.
fn unsigned(words: vec4<u32>, half: u32) -> vec4<u32> {
    return (words >> vec4<u32>(16u * half)) & vec4<u32>(0x7fffu);
}

// f32 bits of a finite element's magnitude.
fn widen(element: vec4<u32>) -> vec4<u32> {
    let normal = (element << vec4<u32>(13u)) + vec4<u32>(0x38000000u);
    // 2^-14 * (1 + m / 1024) - 2^-14 is exact, and a normal f32 where m is not 0.
    let subnormal = bitcast<vec4<f32>>(normal + vec4<u32>(0x800000u)) - vec4<f32>(6.103515625e-5);
    return select(normal, bitcast<vec4<u32>>(subnormal), element < vec4<u32>(0x400u));
}

// f32 bits of any element's magnitude: 0x7f800000 for infinity, more for NaN.
fn widen_any(element: u32) -> u32 {
    return widen(vec4<u32>(element)).x + select(0u, 0x38000000u, element >= 0x7c00u);
}

// The new word's bits of one element, from its new magnitude (f32 bits, below f16's overflow) and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    let shift = vec4<u32>(16u * half);
    return (narrow(magnitude) << shift) | (words & (vec4<u32>(0x8000u) << shift));
}

// To nearest, ties to even. Adding the rounding bias carries into the exponent by itself.
fn narrow(magnitude: vec4<u32>) -> vec4<u32> {
    let rebased = magnitude - vec4<u32>(0x38000000u);
    let normal = (rebased + vec4<u32>(0xfffu) + ((rebased >> vec4<u32>(13u)) & vec4<u32>(1u))) >> vec4<u32>(13u);
    // Below 2^-14: in units of 2^-24. 25 shifts a 24-bit significand and its rounding bit out.
    let significand = (magnitude & vec4<u32>(0x7fffffu)) | vec4<u32>(0x800000u);
    let shift = min(vec4<u32>(126u) - min(magnitude >> vec4<u32>(23u), vec4<u32>(112u)), vec4<u32>(25u));
    let floored = significand >> shift;
    let bias = (vec4<u32>(1u) << (shift - vec4<u32>(1u))) - vec4<u32>(1u) + (floored & vec4<u32>(1u));
    let subnormal = (significand + bias) >> shift;
    return select(subnormal, normal, magnitude >= vec4<u32>(0x38800000u));
}

// Where a hardware product is not to be trusted: nowhere, since what a unit may flush is 0 in f16 anyway.
fn suspect(product: vec4<u32>, magnitude: vec4<u32>) -> vec4<bool> {
    return vec4<bool>(false);
}
