// How bf16 elements are written.

// One element of each word that is written, without its sign: as `unsigned`, which is for words that were read, so that no
// product is mistaken for one.
fn stored(words: vec4<u32>, half: u32) -> vec4<u32> {
    return (words << vec4<u32>(16u - 16u * half)) & vec4<u32>(0x7fff0000u);
}

// As `stored` gives it.
const SMALLEST_NORMAL = 0x800000u;

// The new word's bits of one element, from its new magnitude (f32 bits, below bf16's overflow) and the old word.
fn place(magnitude: vec4<u32>, words: vec4<u32>, half: u32) -> vec4<u32> {
    return narrow(magnitude, half) | (words & vec4<u32>(0x8000u << (16u * half)));
}

// f32 bits, with or without a sign, to nearest, ties to even, and where they belong in the word.
fn narrow(bits: vec4<u32>, half: u32) -> vec4<u32> {
    let upper = bits + vec4<u32>(0x7fffu) + ((bits >> vec4<u32>(16u)) & vec4<u32>(1u));
    return (upper >> vec4<u32>(16u)) << vec4<u32>(16u * half);
}

// The new word's bits of one element, from the old word, by one hardware multiply; at most `value`.
fn multiply(words: vec4<u32>, half: u32, factor: f32, value: u32) -> vec4<u32> {
    let element = (words << vec4<u32>(16u - 16u * half)) & vec4<u32>(0xffff0000u);
    return narrow(clip(bitcast<vec4<u32>>(bitcast<vec4<f32>>(element) * factor), value), half);
}

// Where a hardware product is not to be trusted: what is not 0 and below `tiny` may be flushed, or its product.
fn suspect(words: vec4<u32>, half: u32, tiny: u32) -> vec4<bool> {
    return unsigned(words, half) - vec4<u32>(1u) < vec4<u32>(tiny - 1u);
}
