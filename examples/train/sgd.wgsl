// SGD with momentum, as in PyTorch. One thread a word.
@group(0) @binding(5) var<storage, read_write> momenta: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= hyper.words || verdict.skip != 0u) {
        return;
    }
    let word = hyper.first + id.x;
    let momentum = hyper.beta1 * momenta[word] + clipped_gradient(word) + hyper.decay * weights[word];
    let weight = weights[word] - hyper.rate * momentum;
    momenta[word] = momentum;
    weights[word] = weight;
    half_weights[word] = halves(weight);
}
