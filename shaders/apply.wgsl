// Multiplies every gradient by the factor of the verdict, in place: one rounding to f32, then one into the format.

@group(0) @binding(1) var<storage, read> verdict: Verdict;

fn multiply(magnitude: vec4<u32>, exact: bool) -> vec4<u32> {
    var product = bitcast<vec4<u32>>(bitcast<vec4<f32>>(magnitude) * verdict.factor);
    // Near the smallest normal the unit may flush what it reads or writes: integers there.
    let small = product < vec4<u32>(0x1000000u);
    if exact || any(small & (magnitude != vec4<u32>(0u))) {
        let factor = R24(verdict.factor_significand, verdict.factor_exponent);
        for (var i = 0u; i < 4u; i += 1u) {
            if exact || product[i] < 0x1000000u {
                product[i] = multiply_bits(magnitude[i], factor);
            }
        }
    }
    return product;
}

fn scale_words(words: vec4<u32>, exact: bool) -> vec4<u32> {
    var scaled = vec4<u32>(0u);
    for (var half = 0u; half < ELEMENTS_PER_WORD; half += 1u) {
        scaled |= place(multiply(magnitudes(words, half), exact), words, half);
    }
    return scaled;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group.x + group.y * groups.x;
    if index >= dispatch.tile_count || verdict.apply == 0u {
        return;
    }
    let exact = verdict.apply == 2u;
    let tile = find_tile(index);
    for (var start = tile.begin; start < tile.end; start += BLOCK_WORDS) {
        let at = start + lane;
        if start + BLOCK_WORDS <= tile.whole {
            let block = read_block(tile.slot, at);
            write_block(tile.slot, at, Block(
                scale_words(block.a, exact),
                scale_words(block.b, exact),
                scale_words(block.c, exact),
                scale_words(block.d, exact),
            ));
        } else {
            for (var word = at; word < min(tile.end, start + BLOCK_WORDS); word += THREADS) {
                let old = read_at(tile.slot, vec4<u32>(word));
                let scaled = scale_words(old, exact);
                // The upper half of an odd tensor's last word is not the tensor's.
                let kept = (scaled & vec4<u32>(0xffffu)) | (old & vec4<u32>(0xffff0000u));
                write_word(tile.slot, word, select(scaled.x, kept.x, word >= tile.whole));
            }
        }
    }
}
