// Two 16-bit elements a word, the lower index in the lower half.

const ELEMENTS_PER_WORD = 2u;
