// The plain f32 sum over a workgroup of 256.

var<workgroup> lanes: array<f32, 256>;

fn add_up(lane: u32, sum: f32) -> f32 {
    lanes[lane] = sum;
    for (var stride = 128u; stride > 0u; stride /= 2u) {
        workgroupBarrier();
        if lane < stride {
            lanes[lane] += lanes[lane + stride];
        }
    }
    workgroupBarrier();
    return lanes[0];
}
