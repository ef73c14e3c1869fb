// Mean loss and accuracy of all rows, into the slot that the host chose for this step.
struct Shape {
    rows: u32,
    // Which word of `batch` holds the slot.
    slot: u32,
    reserved: vec2<u32>,
}

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> batch: array<u32>;
@group(0) @binding(2) var<storage, read> scores: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> curve: array<vec2<f32>>;

@compute @workgroup_size(1)
fn main() {
    var sum = vec2(0.0);
    for (var row = 0u; row < shape.rows; row++) {
        sum += scores[row];
    }
    curve[batch[shape.slot]] = sum / f32(shape.rows);
}
