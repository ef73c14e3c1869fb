@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var i = lane; i < dispatch.all_tiles; i += THREADS) {
        sum += partials[i];
    }
    let all = add_up(lane, sum);
    if lane == 0u {
        state.norm = sqrt(all);
        state.coefficient = min(1.0, dispatch.max_norm / (state.norm + 1e-6));
    }
}
