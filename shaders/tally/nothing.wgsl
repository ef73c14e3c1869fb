// Nothing is counted.
fn tally(tile: Tile, places: vec4<u32>, old: vec4<u32>, new: vec4<u32>) {
}
