// Forgets what an earlier step counted. One workgroup.

const THREADS = 256u;

@group(0) @binding(0) var<storage, read_write> lost: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    for (var i = lane; i < finish.tensor_count * 4u; i += THREADS) {
        lost[i] = 0u;
    }
}
