// Exact scalar arithmetic in u32: no float unit, no f64, no 64-bit integers.

// significand * 2^exponent: the significand is 0 (exponent 0 too) or has exactly 24 bits.
struct R24 {
    significand: u32,
    exponent: i32,
}

const R24_ONE = R24(0x800000u, -23);

// A 64-bit unsigned integer.
struct Wide {
    hi: u32,
    lo: u32,
}

fn wide_add(a: Wide, b: Wide) -> Wide {
    let lo = a.lo + b.lo;
    return Wide(a.hi + b.hi + u32(lo < a.lo), lo);
}

fn wide_shl(a: Wide, s: u32) -> Wide {
    if s == 0u { return a; }
    if s >= 64u { return Wide(0u, 0u); }
    if s >= 32u { return Wide(a.lo << (s - 32u), 0u); }
    return Wide((a.hi << s) | (a.lo >> (32u - s)), a.lo << s);
}

fn wide_shr(a: Wide, s: u32) -> Wide {
    if s == 0u { return a; }
    if s >= 64u { return Wide(0u, 0u); }
    if s >= 32u { return Wide(0u, a.hi >> (s - 32u)); }
    return Wide(a.hi >> s, (a.lo >> s) | (a.hi << (32u - s)));
}

fn wide_bits(a: Wide) -> u32 {
    if a.hi != 0u { return 64u - countLeadingZeros(a.hi); }
    return 32u - countLeadingZeros(a.lo);
}

// The exact product of two numbers below 2^24, from 12-bit halves.
fn product_24(a: u32, b: u32) -> Wide {
    let al = a & 0xfffu;
    let ah = a >> 12u;
    let bl = b & 0xfffu;
    let bh = b >> 12u;
    let middle = al * bh + ah * bl;
    let outer = Wide((ah * bh) >> 8u, (ah * bh) << 24u);
    return wide_add(wide_add(outer, Wide(middle >> 20u, middle << 12u)), Wide(0u, al * bl));
}

// a / 2^s to nearest, ties to even; `sticky`: the true number is a little above a. The quotient must fit a u32.
fn shift_round(a: Wide, s: u32, sticky: bool) -> u32 {
    if s == 0u { return a.lo; }
    if s > 64u { return 0u; }
    let q = wide_shr(a, s).lo;
    let half = wide_shr(a, s - 1u).lo & 1u;
    let below = wide_shl(a, 65u - s);
    let more = sticky || below.hi != 0u || below.lo != 0u;
    return q + (half & (q | u32(more)) & 1u);
}

// a * 2^exponent, and a little more if `sticky`, rounded to 24 bits. With `sticky`, a must have 25 bits or more.
fn r24_round(a: Wide, exponent: i32, sticky: bool) -> R24 {
    let bits = wide_bits(a);
    if bits == 0u { return R24(0u, 0); }
    if bits <= 24u {
        return R24(a.lo << (24u - bits), exponent - i32(24u - bits));
    }
    let s = bits - 24u;
    let q = shift_round(a, s, sticky);
    if q == 0x1000000u { return R24(0x800000u, exponent + i32(s) + 1); }
    return R24(q, exponent + i32(s));
}

// v * 2^exponent for a 128-bit v (highest word first), rounded to 24 bits.
fn r24_round_128(v: vec4<u32>, exponent: i32) -> R24 {
    var w = v;
    var e = exponent + 64;
    for (var i = 0u; i < 2u && w.x == 0u; i += 1u) {
        w = vec4<u32>(w.y, w.z, w.w, 0u);
        e -= 32;
    }
    return r24_round(Wide(w.x, w.y), e, w.z != 0u || w.w != 0u);
}

// The exact value of a finite f32 that is not negative, from its bits.
fn r24_from_bits(bits: u32) -> R24 {
    let field = bits >> 23u;
    if field == 0u { return r24_round(Wide(0u, bits), -149, false); }
    return R24((bits & 0x7fffffu) | 0x800000u, i32(field) - 150);
}

fn r24_mul(a: R24, b: R24) -> R24 {
    return r24_round(product_24(a.significand, b.significand), a.exponent + b.exponent, false);
}

// b must not be zero.
fn r24_div(a: R24, b: R24) -> R24 {
    if a.significand == 0u { return R24(0u, 0); }
    var rest = a.significand;
    var q = 0u;
    for (var i = 0u; i < 26u; i += 1u) {
        q = q << 1u;
        if rest >= b.significand {
            rest -= b.significand;
            q |= 1u;
        }
        rest = rest << 1u;
    }
    return r24_round(Wide(0u, q), a.exponent - b.exponent - 25, rest != 0u);
}

// 1 / (a * b), the product exact and the quotient rounded once. Neither may be zero.
fn r24_inverse_product(a: R24, b: R24) -> R24 {
    var product = product_24(a.significand, b.significand);
    var exponent = a.exponent + b.exponent;
    // 47 bits or 48: then 48.
    if wide_bits(product) == 47u {
        product = wide_shl(product, 1u);
        exponent -= 1;
    }
    var rest = Wide(0x8000u, 0u);
    var q = 0u;
    for (var i = 0u; i < 26u; i += 1u) {
        q = q << 1u;
        if rest.hi > product.hi || (rest.hi == product.hi && rest.lo >= product.lo) {
            rest = Wide(rest.hi - product.hi - u32(rest.lo < product.lo), rest.lo - product.lo);
            q |= 1u;
        }
        rest = wide_shl(rest, 1u);
    }
    return r24_round(Wide(0u, q), -72 - exponent, rest.hi != 0u || rest.lo != 0u);
}

fn r24_less(a: R24, b: R24) -> bool {
    if a.significand == 0u || b.significand == 0u { return a.significand < b.significand; }
    if a.exponent != b.exponent { return a.exponent < b.exponent; }
    return a.significand < b.significand;
}

fn r24_add(a: R24, b: R24) -> R24 {
    if a.significand == 0u { return b; }
    if b.significand == 0u { return a; }
    var big = a;
    var small = b;
    if r24_less(a, b) {
        big = b;
        small = a;
    }
    let apart = u32(big.exponent - small.exponent);
    let wide_big = wide_shl(Wide(0u, big.significand), 32u);
    let wide_small = wide_shl(Wide(0u, small.significand), 32u);
    // What this shifts out lies more than 32 bits below the sum's first and can decide no rounding.
    let kept = wide_shr(wide_small, apart);
    return r24_round(wide_add(wide_big, kept), big.exponent - 32, false);
}

// sqrt(v * 2^exponent) for a 128-bit v (highest word first) and an even exponent. Digit by digit: 26 bits, and whether
// there would be more, decide every rounding.
fn r24_sqrt(v: vec4<u32>, exponent: i32) -> R24 {
    var w = v;
    var e = exponent;
    for (var i = 0u; i < 3u && w.x == 0u; i += 1u) {
        w = vec4<u32>(w.y, w.z, w.w, 0u);
        e -= 32;
    }
    if w.x == 0u { return R24(0u, 0); }
    let s = countLeadingZeros(w.x) & ~1u;
    if s != 0u {
        let t = 32u - s;
        w = vec4<u32>((w.x << s) | (w.y >> t), (w.y << s) | (w.z >> t), (w.z << s) | (w.w >> t), w.w << s);
        e -= i32(s);
    }
    var rest = 0u;
    var root = 0u;
    for (var i = 0u; i < 26u; i += 1u) {
        let pair = select(w.y >> (30u - 2u * (i & 15u)), w.x >> (30u - 2u * (i & 15u)), i < 16u) & 3u;
        rest = (rest << 2u) | pair;
        let trial = (root << 2u) | 1u;
        root = root << 1u;
        if rest >= trial {
            rest -= trial;
            root |= 1u;
        }
    }
    let sticky = rest != 0u || (w.y & 0xfffu) != 0u || w.z != 0u || w.w != 0u;
    return r24_round(Wide(0u, root), 38 + e / 2, sticky);
}

// |x| * factor as f32 bits, to nearest even, subnormals kept; too large becomes the bits of infinity. `magnitude` is
// the bits of a finite |x|.
fn multiply_bits(magnitude: u32, factor: R24) -> u32 {
    let x = r24_from_bits(magnitude);
    if x.significand == 0u || factor.significand == 0u { return 0u; }
    let p = product_24(x.significand, factor.significand);
    let e = x.exponent + factor.exponent;
    let bits = wide_bits(p);
    let leading = e + i32(bits) - 1;
    if leading > 127 { return 0x7f800000u; }
    // Adding instead of or-ing the rounded significand carries into the exponent by itself.
    if leading < -126 { return shift_round(p, u32(-149 - e), false); }
    return (u32(leading + 126) << 23u) + shift_round(p, bits - 24u, false);
}
