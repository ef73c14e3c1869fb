// Nothing is counted.
fn tally(tile: Tile, places: vec4<u32>, old: vec4<u32>, fresh: vec4<u32>) {
}
