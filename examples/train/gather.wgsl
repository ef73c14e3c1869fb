// Copies the images and labels of one microbatch. One thread a word of the images.
struct Shape {
    words: u32,
    rows: u32,
    // Where the microbatch starts in `batch`.
    first: u32,
    reserved: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> batch: array<u32>;
@group(0) @binding(2) var<storage, read> images: array<u32>;
@group(0) @binding(3) var<storage, read> labels: array<u32>;
@group(0) @binding(4) var<storage, read_write> inputs: array<u32>;
@group(0) @binding(5) var<storage, read_write> targets: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x / shape.words;
    let word = id.x % shape.words;
    if (row >= shape.rows) {
        return;
    }
    let sample = batch[shape.first + row];
    inputs[id.x] = images[sample * shape.words + word];
    if (word == 0u) {
        targets[row] = labels[sample];
    }
}
