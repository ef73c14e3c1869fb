// What both rules share. `from_scaled` reads gradients that a step has scaled in place, `deferred` those that it only
// measured, and multiplies by the verdict's factor itself. Put after `struct GradclipVerdict`, before `fn update`.
//
// Contraction: WGSL lets a compiler merge a product with the addition that follows, into one rounding. `deferred` has
// one product more, so a compiler may choose differently there, even in a * b + g * factor with a factor that is a power
// of two, where merging g * factor rounds nothing but leaves a * b to be rounded by itself. `times` therefore hides each
// product behind an integer that the compiler cannot know. Then both entries round alike from the gradient on, and the
// gradient is the same: one correctly rounded product, of which `apply` stores the very bits.

struct Hyper {
    elements: u32,
    // Holds 0, which the compiler cannot know.
    zero: u32,
    rate: f32,
    weight_decay: f32,
    // Momentum; for AdamW that of the first and of the second moment.
    beta_1: f32,
    beta_2: f32,
    epsilon: f32,
    // 1 - beta^step.
    correction_1: f32,
    correction_2: f32,
}

@group(0) @binding(0) var<storage, read> verdict: GradclipVerdict;
@group(0) @binding(1) var<uniform> hyper: Hyper;
@group(0) @binding(2) var<storage, read> gradients: array<f32>;
@group(0) @binding(3) var<storage, read_write> parameters: array<f32>;
// First moments, then second moments.
@group(0) @binding(4) var<storage, read_write> moments: array<f32>;

fn times(a: f32, b: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(a * b) ^ hyper.zero);
}

fn power_of_two(exponent: i32) -> f32 {
    return bitcast<f32>(u32(exponent + 127) << 23u);
}

// A gradient times the verdict's factor.
fn unscaled(gradient: f32) -> f32 {
    if verdict.apply != 2u {
        return times(gradient, verdict.factor);
    }
    // The factor lies outside f32: its significand as a number below 1, then the power of two in halves.
    let product = times(gradient, f32(verdict.factor_significand) * power_of_two(-24));
    let exponent = verdict.factor_exponent + 24;
    return times(times(product, power_of_two(exponent / 2)), power_of_two(exponent - exponent / 2));
}

@compute @workgroup_size(64)
fn from_scaled(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < hyper.elements && verdict.skip == 0u {
        update(id.x, gradients[id.x]);
    }
}

@compute @workgroup_size(64)
fn deferred(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < hyper.elements && verdict.skip == 0u {
        update(id.x, unscaled(gradients[id.x]));
    }
}
