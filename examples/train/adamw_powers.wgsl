// Counts a step of AdamW: on the GPU, since only it knows which steps were skipped.
@group(0) @binding(0) var<uniform> hyper: Hyper;
@group(0) @binding(1) var<storage, read> verdict: Verdict;
@group(0) @binding(2) var<storage, read_write> powers: vec2<f32>;

@compute @workgroup_size(1)
fn main() {
    if (verdict.skip == 0u) {
        powers *= vec2(hyper.beta1, hyper.beta2);
    }
}
