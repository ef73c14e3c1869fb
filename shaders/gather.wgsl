// Copies one number from a buffer of the caller's to where the step reads it. The last of as many workgroups as tell which
// number it is does it: that needs no other parameter.

struct Place {
    // The word, counted from the start of the binding.
    word: u32,
}

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<uniform> place: Place;
@group(1) @binding(0) var<storage, read_write> head: Head;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    if group.x + 1u == groups.x {
        head.own.words[group.x] = source[place.word];
    }
}
