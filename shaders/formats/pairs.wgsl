// Two 16-bit elements a word, the lower index in the lower half.

const ELEMENTS_PER_WORD = 2u;

// The largest element of each word, as `unsigned` gives it.
fn larger(words: vec4<u32>) -> vec4<u32> {
    return max(unsigned(words, 0u), unsigned(words, 1u));
}
