@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = group.x + group.y * groups.x;
    if index >= dispatch.tile_count {
        return;
    }
    let tile = dispatch.first_tile + index;
    let segment = table[dispatch.tiles_at + tile] * SEGMENT_WORDS;
    let slot = table[segment];
    let first = table[segment + 1u];
    let tile_begin = (tile - table[segment + 3u]) * dispatch.tile_words;
    let begin = first + tile_begin;
    let end = first + min(tile_begin + dispatch.tile_words, table[segment + 2u]);
    let factor = FACTOR;
    var bad = false;
    var sum = vec4<f32>(0.0);
    for (var start = begin; start < end; start += 4096u) {
        visit(slot, start, lane, end, factor, &sum, &bad);
    }
AFTER
}
