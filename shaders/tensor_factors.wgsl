// What each tensor is multiplied by and clipped to, where the limit is not one norm of all tensors. One workgroup. After
// norm_finish, which looked for what is not finite, and tensor_norms. Integers only.

const THREADS = 256u;

struct Norms {
    tensor_count: u32,
    first_f16: u32,
    first_bf16: u32,
}

@group(0) @binding(0) var<storage, read_write> clips: array<TensorClip>;
@group(0) @binding(1) var<storage, read_write> verdict: Verdict;
@group(0) @binding(2) var<uniform> info: Norms;
// The loss scale, as f32 bits.
@group(1) @binding(1) var<uniform> loss_scale: vec4<u32>;

var<workgroup> skip: u32;
var<workgroup> overflow: atomic<u32>;
var<workgroup> smallest: array<R24, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        skip = verdict.skip;
        atomicStore(&overflow, 0u);
    }
    let skipped = workgroupUniformLoad(&skip) != 0u;
    let run = verdict.run;
    let inverse = r24_div(R24_ONE, r24_from_bits(loss_scale.x));
    var least = R24_ONE;
    for (var tensor = lane; tensor < info.tensor_count; tensor += THREADS) {
        let clip = clips[tensor];
        var coefficient = R24_ONE;
        if limit.scope == EACH_TENSOR {
            coefficient = coefficient_of(R24(clip.norm_significand, clip.norm_exponent));
        }
        if r24_less(coefficient, least) {
            least = coefficient;
        }
        let factor = r24_mul(coefficient, inverse);
        let clip_value = vec3<u32>(limit.clip_f32, limit.clip_f16, limit.clip_bf16)[clip.format];
        let how = multiplier(factor);
        // A factor of 1 leaves nothing to do only if nothing is too large.
        let largest = multiply_bits(min(clip.largest, NONFINITE - 1u), factor);
        if largest >= OVERFLOW[clip.format] && clip_value >= NONFINITE {
            atomicStore(&overflow, 1u);
        }
        clips[tensor].apply = select(how.apply, 1u, how.apply == 0u && largest > clip_value);
        clips[tensor].factor = how.factor;
        clips[tensor].factor_significand = factor.significand;
        clips[tensor].factor_exponent = factor.exponent;
        clips[tensor].coefficient_significand = coefficient.significand;
        clips[tensor].coefficient_exponent = coefficient.exponent;
        clips[tensor].clip_value = clip_value;
        clips[tensor].run = select(0u, max(run, 1u), limit.scope == EACH_TENSOR);
    }
    smallest[lane] = least;
    workgroupBarrier();
    let given_up = skipped || atomicLoad(&overflow) != 0u;
    if given_up {
        for (var tensor = lane; tensor < info.tensor_count; tensor += THREADS) {
            clips[tensor].apply = 0u;
            clips[tensor].factor = 0.0;
            clips[tensor].factor_significand = 0u;
            clips[tensor].factor_exponent = 0;
            clips[tensor].coefficient_significand = 0u;
            clips[tensor].coefficient_exponent = 0;
        }
    }
    if lane == 0u && !skipped {
        if given_up {
            verdict.skip = 1u;
            verdict.found_inf = 1u;
            verdict.overflow = 1u;
            verdict.taken -= 1u;
            verdict.apply = 0u;
            verdict.factor = 0.0;
            verdict.factor_significand = 0u;
            verdict.factor_exponent = 0;
            least = R24(0u, 0);
        } else {
            for (var i = 1u; i < THREADS; i += 1u) {
                if r24_less(smallest[i], least) {
                    least = smallest[i];
                }
            }
        }
        verdict.coefficient_significand = least.significand;
        verdict.coefficient_exponent = least.exponent;
    }
}
