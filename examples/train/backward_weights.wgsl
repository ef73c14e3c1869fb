// Adds one microbatch's gradients of weights and bias to those that are there. One thread a word.
@group(0) @binding(0) var<uniform> layer: Layer;
@group(0) @binding(1) var<storage, read> inputs: array<u32>;
@group(0) @binding(2) var<storage, read> deltas: array<u32>;
@group(0) @binding(3) var<storage, read_write> gradients: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let weights = layer.outputs * layer.inputs;
    let element = 2u * id.x;
    if (element >= weights + layer.outputs) {
        return;
    }
    var sum = unpack2x16float(gradients[id.x]);
    if (element < weights) {
        let output = element / layer.inputs;
        let input = element % layer.inputs;
        for (var row = 0u; row < layer.rows; row++) {
            let delta = unpack2x16float(deltas[(row * layer.outputs + output) / 2u])[output % 2u];
            sum += delta * unpack2x16float(inputs[(row * layer.inputs + input) / 2u]);
        }
    } else {
        for (var row = 0u; row < layer.rows; row++) {
            sum += unpack2x16float(deltas[(row * layer.outputs + element - weights) / 2u]);
        }
    }
    gradients[id.x] = halves(sum);
}
