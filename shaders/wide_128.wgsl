// 128-bit unsigned integers, highest word first, and the whole sum of f16, which is one.

fn wide_128_add(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    let sum = a + b;
    var out = sum;
    var carry = u32(sum.w < a.w);
    out.z = sum.z + carry;
    carry = u32(sum.z < a.z) + u32(out.z < sum.z);
    out.y = sum.y + carry;
    carry = u32(sum.y < a.y) + u32(out.y < sum.y);
    out.x = sum.x + carry;
    return out;
}

fn wide_128_shl(a: vec4<u32>, s: u32) -> vec4<u32> {
    if s >= 128u { return vec4<u32>(0u); }
    var v = a;
    for (var i = s / 32u; i > 0u; i -= 1u) {
        v = vec4<u32>(v.yzw, 0u);
    }
    let t = s % 32u;
    if t == 0u { return v; }
    return (v << vec4<u32>(t)) | (vec4<u32>(v.yzw, 0u) >> vec4<u32>(32u - t));
}

fn wide_128_shr(a: vec4<u32>, s: u32) -> vec4<u32> {
    if s >= 128u { return vec4<u32>(0u); }
    var v = a;
    for (var i = s / 32u; i > 0u; i -= 1u) {
        v = vec4<u32>(0u, v.xyz);
    }
    let t = s % 32u;
    if t == 0u { return v; }
    return (v >> vec4<u32>(t)) | (vec4<u32>(0u, v.xyz) << vec4<u32>(32u - t));
}

fn wide_128_bits(a: vec4<u32>) -> u32 {
    if a.x != 0u { return 128u - countLeadingZeros(a.x); }
    if a.y != 0u { return 96u - countLeadingZeros(a.y); }
    if a.z != 0u { return 64u - countLeadingZeros(a.z); }
    return 32u - countLeadingZeros(a.w);
}

// The sum of four columns with signs, 64 bits each (low and high words), each 2^20 times the next. It is not negative.
fn whole_sum(low: vec4<u32>, high: vec4<u32>) -> vec4<u32> {
    var v = vec4<u32>(0u);
    for (var i = 0u; i < 4u; i += 1u) {
        let sign = select(0u, 0xffffffffu, (high[i] & 0x80000000u) != 0u);
        v = wide_128_add(wide_128_shl(v, 20u), vec4<u32>(sign, sign, high[i], low[i]));
    }
    return v;
}
