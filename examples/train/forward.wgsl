// outputs = relu(inputs * weights + bias). One thread two neighbouring outputs, summed in f32.
@group(0) @binding(0) var<uniform> layer: Layer;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> inputs: array<u32>;
@group(0) @binding(3) var<storage, read_write> outputs: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x / (layer.outputs / 2u);
    let first = 2u * (id.x % (layer.outputs / 2u));
    if (row >= layer.rows) {
        return;
    }
    let words = layer.inputs / 2u;
    var sum = unpack2x16float(weights[(layer.outputs * layer.inputs + first) / 2u]);
    for (var k = 0u; k < words; k++) {
        let x = unpack2x16float(inputs[row * words + k]);
        sum += vec2(
            dot(x, unpack2x16float(weights[first * words + k])),
            dot(x, unpack2x16float(weights[(first + 1u) * words + k])),
        );
    }
    if (layer.relu != 0u) {
        sum = max(sum, vec2(0.0));
    }
    outputs[id.x] = halves(sum);
}
