// Softmax cross-entropy. One thread a row: its loss and whether it is right, and the gradient of the scaled mean loss.
struct Shape {
    digits: u32,
    rows: u32,
    // Where the rows start in `scores`.
    first: u32,
    // Rows of all microbatches of a step: the loss is their mean.
    mean_over: u32,
}

@group(0) @binding(0) var<uniform> shape: Shape;
// The scaler's buffer. The scale is its first word.
@group(0) @binding(1) var<uniform> loss_scale: vec4<f32>;
@group(0) @binding(2) var<storage, read> logits: array<u32>;
@group(0) @binding(3) var<storage, read> targets: array<u32>;
@group(0) @binding(4) var<storage, read_write> deltas: array<u32>;
@group(0) @binding(5) var<storage, read_write> scores: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x;
    if (row >= shape.rows) {
        return;
    }
    let words = shape.digits / 2u;
    let target_digit = targets[row];
    var largest = -3.0e38;
    var best = 0u;
    for (var digit = 0u; digit < shape.digits; digit++) {
        let logit = unpack2x16float(logits[row * words + digit / 2u])[digit % 2u];
        if (logit > largest) {
            largest = logit;
            best = digit;
        }
    }
    var sum = 0.0;
    for (var word = 0u; word < words; word++) {
        let e = exp(unpack2x16float(logits[row * words + word]) - largest);
        sum += e.x + e.y;
    }
    let own = unpack2x16float(logits[row * words + target_digit / 2u])[target_digit % 2u];
    scores[shape.first + row] = vec2(log(sum) + largest - own, f32(best == target_digit));

    let weight = loss_scale.x / f32(shape.mean_over);
    for (var word = 0u; word < words; word++) {
        let probability = exp(unpack2x16float(logits[row * words + word]) - largest) / sum;
        let is_target = vec2(f32(2u * word == target_digit), f32(2u * word + 1u == target_digit));
        deltas[row * words + word] = halves((probability - is_target) * weight);
    }
}
