// How f16 elements are written: rounded by hand, because a driver may round a conversion as it likes.

// One element of each word that is written, without its sign: as `unsigned`, which is for words that were read, so that no
// product is mistaken for one.
fn stored(words: vec4<u32>, half: u32) -> vec4<u32> {
    return (words >> vec4<u32>(16u * half)) & vec4<u32>(0x7fffu);
}

// As `stored` gives it.
const SMALLEST_NORMAL = 0x400u;

// The new word's bits of one element, from its new magnitude (f32 bits, below f16's overflow) and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    let shift = vec4<u32>(16u * half);
    return (narrow(magnitude) << shift) | (words & (vec4<u32>(0x8000u) << shift));
}

// To nearest, ties to even.
fn narrow(magnitude: vec4<u32>) -> vec4<u32> {
    // Adding the rounding bias carries into the exponent by itself.
    let rebased = magnitude - vec4<u32>(0x38000000u);
    let normal = (rebased + vec4<u32>(0xfffu) + ((rebased >> vec4<u32>(13u)) & vec4<u32>(1u))) >> vec4<u32>(13u);
    // Below 2^-14: the last bit of a number from 1/2 to 1 is 2^-24, so the addition rounds to units of that. It must not
    // be merged with the product before it, which has a rounding of its own.
    let fenced = bitcast<vec4<f32>>(magnitude ^ vec4<u32>(dispatch.zero));
    let subnormal = bitcast<vec4<u32>>(fenced + vec4<f32>(0.5)) - vec4<u32>(0x3f000000u);
    return select(subnormal, normal, magnitude >= vec4<u32>(0x38800000u));
}

// The new word's bits of one element, from the old word, by one hardware multiply; at most `value`.
fn multiply(words: vec4<u32>, half: u32, factor: f32, value: u32) -> vec4<u32> {
    let product = bitcast<vec4<f32>>(widen(unsigned(words, half))) * factor;
    return place(clip(bitcast<vec4<u32>>(product), value), words, half);
}

// Where a hardware product is not to be trusted: nowhere, since what a unit may flush is 0 in f16 anyway.
fn suspect(words: vec4<u32>, half: u32, tiny: u32) -> vec4<bool> {
    return vec4<bool>(false);
}
