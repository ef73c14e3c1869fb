// The least that memory allows. What stands in capitals is filled in by limit.rs.

@group(0) @binding(0) var<storage, ACCESS> words: array<WORD>;
@group(0) @binding(1) var<storage, read_write> sink: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var at = group.x * PASSES * STRIDE + lane;
    var sum = WORD(0u);
    for (var i = 0u; i < PASSES; i += 1u) {
BODY
        at += STRIDE;
    }
END
}
