// What each tensor is multiplied by and clipped to, where the limit is not one norm of all tensors. One workgroup. After
// norm_finish, which looked for what is not finite, and tensor_norms. Integers only.

const THREADS = 256u;

@group(0) @binding(0) var<storage, read_write> clips: array<TensorClip>;
@group(0) @binding(1) var<storage, read_write> head: Head;

var<workgroup> overflow: atomic<u32>;
var<workgroup> smallest: array<R24, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        atomicStore(&overflow, 0u);
    }
    workgroupBarrier();
    let skipped = head.verdict.skip != 0u;
    let run = head.verdict.run;
    let inverse = R24(head.own.inverse_significand, head.own.inverse_exponent);
    var least = R24_ONE;
    for (var tensor = lane; tensor < finish.tensor_count; tensor += THREADS) {
        let clip = clips[tensor];
        let format = clip.kind / ROLES;
        let role = clip.kind % ROLES;
        var coefficient = R24_ONE;
        if params.rule == RULE_EACH_TENSOR && role == COUNTED_AND_SCALED {
            let norm = R24(clip.norm_significand, clip.norm_exponent);
            coefficient = coefficient_of(norm, head.own.max_norm, head.own.eps);
        }
        if r24_less(coefficient, least) {
            least = coefficient;
        }
        let factor = r24_mul(coefficient, inverse);
        let clip_value = vec3<u32>(params.clip_f32, params.clip_f16, params.clip_bf16)[format];
        let how = multiplier(factor);
        // A factor of 1 leaves nothing to do only if nothing is too large.
        let largest = multiply_bits(min(clip.largest, NONFINITE - 1u), factor);
        if role != COUNTED_ONLY && largest >= OVERFLOW[format] && clip_value >= NONFINITE {
            atomicStore(&overflow, 1u);
        }
        clips[tensor].apply = select(how.apply, 1u, how.apply == 0u && largest > clip_value);
        clips[tensor].factor = how.factor;
        clips[tensor].factor_significand = factor.significand;
        clips[tensor].factor_exponent = factor.exponent;
        clips[tensor].coefficient_significand = coefficient.significand;
        clips[tensor].coefficient_exponent = coefficient.exponent;
        clips[tensor].clip_value = clip_value;
        clips[tensor].run = select(0u, max(run, 1u), params.rule == RULE_EACH_TENSOR);
    }
    smallest[lane] = least;
    workgroupBarrier();
    let given_up = skipped || atomicLoad(&overflow) != 0u;
    if given_up {
        for (var tensor = lane; tensor < finish.tensor_count; tensor += THREADS) {
            clips[tensor].apply = 0u;
            clips[tensor].factor = 0.0;
            clips[tensor].factor_significand = 0u;
            clips[tensor].factor_exponent = 0;
            clips[tensor].coefficient_significand = 0u;
            clips[tensor].coefficient_exponent = 0;
        }
    }
    // All have read the verdict.
    workgroupBarrier();
    if lane == 0u && !skipped {
        if given_up {
            head.verdict.skip = 1u;
            head.own.skip = 1u;
            head.verdict.found_inf = 1u;
            head.verdict.overflow = 1u;
            head.verdict.taken -= 1u;
            if !told(UPDATED) {
                // norm_finish took the step for taken.
                head.own.steps -= 1u;
                head.own.consecutive_skipped = head.own.skipped_before + 1u;
            }
            head.own.apply = 0u;
            head.verdict.apply = 0u;
            head.verdict.factor = 0.0;
            head.verdict.factor_significand = 0u;
            head.verdict.factor_exponent = 0;
            head.verdict.step_factor_significand = 0u;
            head.verdict.step_factor_exponent = 0;
            least = R24(0u, 0);
        } else {
            for (var i = 1u; i < THREADS; i += 1u) {
                if r24_less(smallest[i], least) {
                    least = smallest[i];
                }
            }
        }
        head.verdict.coefficient_significand = least.significand;
        head.verdict.coefficient_exponent = least.exponent;
    }
}
