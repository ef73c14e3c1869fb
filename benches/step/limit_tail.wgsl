// What is left of a window behind the last full workgroup of limit.wgsl: a word a thread.

@group(0) @binding(0) var<storage, ACCESS> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&words) {
BODY
    }
}
