// The mistake of `--per-microbatch`: clips the gradients that have come together so far, and leaves them scaled.
@group(0) @binding(0) var<storage, read> verdict: GradclipVerdict;
@group(0) @binding(1) var<storage, read_write> gradients: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&gradients) || verdict.skip != 0u) {
        return;
    }
    let coefficient = ldexp(f32(verdict.coefficient_significand), verdict.coefficient_exponent);
    gradients[id.x] = halves(unpack2x16float(gradients[id.x]) * coefficient);
}
