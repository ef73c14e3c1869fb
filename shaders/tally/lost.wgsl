// Counts what the write pass makes 0, or subnormal in its format: what the loss scale had saved. By tensor two words each
// (low, high) for what became 0 and what is left subnormal.

@group(0) @binding(3) var<storage, read_write> lost: array<atomic<u32>>;

fn tally(tile: Tile, places: vec4<u32>, old: vec4<u32>, fresh: vec4<u32>) {
    var zeros = vec4<u32>(0u);
    var subnormals = vec4<u32>(0u);
    for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
        let before = stored(keep(tile, places, old), half);
        let after = stored(keep(tile, places, fresh), half);
        zeros += vec4<u32>(after == vec4<u32>(0u)) & vec4<u32>(before != vec4<u32>(0u));
        subnormals += vec4<u32>(after - vec4<u32>(1u) < vec4<u32>(SMALLEST_NORMAL - 1u));
    }
    let at = tile.tensor * 4u;
    count_lost(at, zeros.x + zeros.y + zeros.z + zeros.w);
    count_lost(at + 2u, subnormals.x + subnormals.y + subnormals.z + subnormals.w);
}

fn count_lost(at: u32, n: u32) {
    if n == 0u {
        return;
    }
    let before = atomicAdd(&lost[at], n);
    if before + n < before {
        atomicAdd(&lost[at + 1u], 1u);
    }
}
