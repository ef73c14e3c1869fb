// What both optimizers share.
@group(0) @binding(0) var<uniform> hyper: Hyper;
// What gradclip decided about all gradients of the optimizer.
@group(0) @binding(1) var<storage, read> verdict: GradclipVerdict;
@group(0) @binding(2) var<storage, read> gradients: array<u32>;
@group(0) @binding(3) var<storage, read_write> weights: array<vec2<f32>>;
// The f16 weights that forward and backward read.
@group(0) @binding(4) var<storage, read_write> half_weights: array<u32>;

// Two gradients, with the loss scale divided out and clipped: in f32, so that nothing is lost below f16.
fn clipped_gradient(word: u32) -> vec2<f32> {
    let gradient = unpack2x16float(gradients[word]);
    return vec2(
        gradclip_scaled_gradient(verdict, gradient.x),
        gradclip_scaled_gradient(verdict, gradient.y),
    );
}
