// Forgets what an earlier step counted.

@group(0) @binding(0) var<storage, read_write> lost: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&lost); i += groups.x * 256u) {
        lost[i] = 0u;
    }
}
