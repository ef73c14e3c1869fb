// Words that belong to their tensor whole.

// What of the words belongs to the tile: the rest is 0.
fn keep(tile: Tile, places: vec4<u32>, words: vec4<u32>) -> vec4<u32> {
    return select(vec4<u32>(0u), words, places < vec4<u32>(tile.end));
}

// The words to write: all of them are the tile's.
fn merge(tile: Tile, places: vec4<u32>, words: vec4<u32>, scaled: vec4<u32>) -> vec4<u32> {
    return scaled;
}
