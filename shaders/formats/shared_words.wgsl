// Two 16-bit elements a word, of which the last may be half another tensor's.

// What of the words belongs to the tile: the rest is 0.
fn keep(tile: Tile, places: vec4<u32>, words: vec4<u32>) -> vec4<u32> {
    let lower = select(vec4<u32>(0u), words & vec4<u32>(0xffffu), places < vec4<u32>(tile.end));
    return select(lower, words, places < vec4<u32>(tile.whole));
}

// The words to write: the upper half of an odd tensor's last word is not the tensor's.
fn merge(tile: Tile, places: vec4<u32>, words: vec4<u32>, scaled: vec4<u32>) -> vec4<u32> {
    let lower = (scaled & vec4<u32>(0xffffu)) | (words & vec4<u32>(0xffff0000u));
    return select(lower, scaled, places < vec4<u32>(tile.whole));
}
