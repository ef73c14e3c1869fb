// Fills a buffer with numbers like gradients.

struct Parameters {
    seed: u32,
    // Biased exponent of the largest, and bits of the fraction.
    exponent: u32,
    fraction: u32,
    words: u32,
}

@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@group(0) @binding(1) var<uniform> parameters: Parameters;

// PCG (Jarzynski and Olano 2020).
fn hash(index: u32) -> u32 {
    let state = index * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

fn number(random: u32, binades: u32) -> u32 {
    let exponent = parameters.exponent - ((random >> 1u) & binades);
    let fraction = (random >> 8u) & ((1u << parameters.fraction) - 1u);
    return (exponent << parameters.fraction) | fraction;
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var at = id.x; at < parameters.words; at += groups.x * 256u) {
        let random = hash(parameters.seed + at);
        var word = 0u;
        if parameters.fraction == 23u {
            word = ((random & 1u) << 31u) | number(random, 15u);
        } else {
            let other = hash(random);
            let low = ((random & 1u) << 15u) | number(random, 7u);
            let high = ((other & 1u) << 15u) | number(other, 7u);
            word = low | (high << 16u);
        }
        words[at] = select(word, 0u, hash(random ^ 0x5bd1e995u) % 8u == 0u);
    }
}
