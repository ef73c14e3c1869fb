// The gradient of a layer's inputs, through the relu that made them. One thread two neighbouring inputs.
@group(0) @binding(0) var<uniform> layer: Layer;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> inputs: array<u32>;
@group(0) @binding(3) var<storage, read> deltas: array<u32>;
@group(0) @binding(4) var<storage, read_write> input_deltas: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let words = layer.inputs / 2u;
    let row = id.x / words;
    let word = id.x % words;
    if (row >= layer.rows) {
        return;
    }
    var sum = vec2(0.0);
    for (var output = 0u; output < layer.outputs; output++) {
        let delta = unpack2x16float(deltas[(row * layer.outputs + output) / 2u])[output % 2u];
        sum += delta * unpack2x16float(weights[output * words + word]);
    }
    let x = unpack2x16float(inputs[id.x]);
    input_deltas[id.x] = halves(select(vec2(0.0), sum, x > vec2(0.0)));
}
