// AdamW, as in PyTorch. One thread a word.
@group(0) @binding(5) var<storage, read_write> means: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> squares: array<vec2<f32>>;

// `base` to the power of `n`: only the GPU knows which steps were skipped, so how many were taken is in the verdict.
fn power(base: vec2<f32>, n: u32) -> vec2<f32> {
    var result = vec2(1.0);
    var square = base;
    for (var rest = n; rest != 0u; rest >>= 1u) {
        result *= select(vec2(1.0), square, (rest & 1u) == 1u);
        square *= square;
    }
    return result;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= hyper.words || verdict.skip != 0u) {
        return;
    }
    let word = hyper.first + id.x;
    let gradient = clipped_gradient(word);
    let mean = mix(gradient, means[word], hyper.beta1);
    let square = mix(gradient * gradient, squares[word], hyper.beta2);
    let powers = power(vec2(hyper.beta1, hyper.beta2), verdict.taken);
    let unbiased = mean / (1.0 - powers.x);
    let deviation = sqrt(square / (1.0 - powers.y)) + hyper.epsilon;
    let weight = weights[word] * (1.0 - hyper.rate * hyper.decay) - hyper.rate * unbiased / deviation;
    means[word] = mean;
    squares[word] = square;
    weights[word] = weight;
    half_weights[word] = halves(weight);
}
