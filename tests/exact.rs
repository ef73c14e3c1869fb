//! R24 arithmetic: that of `shaders/exact.wgsl`, run on every adapter, and that of the reference, against integers and
//! against the CPU's own float unit.
//!
//! Nothing here rounds. A result is right if the true value, known only by how it compares to other numbers, lies
//! between the midpoints to the result's neighbours, and on a midpoint only if the result is even.

mod common;
#[path = "exact/operands.rs"]
mod operands;

use std::cmp::Ordering;

use common::adapters::label;
use common::{gpus, runner};
use gradclip::reference::{apply, exact, norm_finish};
use gradclip::{Context, Format, R24, wgpu};
use operands::{Case, Op, cases};

const MAIN: &str = "
@group(0) @binding(0) var<storage, read> cases: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<vec4<u32>>;

fn fields(v: R24) -> vec2<u32> { return vec2<u32>(v.significand, bitcast<u32>(v.exponent)); }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&results) { return; }
    let at = id.x * 9u;
    let w = vec4<u32>(cases[at + 1u], cases[at + 2u], cases[at + 3u], cases[at + 4u]);
    let a = R24(w.x, bitcast<i32>(w.y));
    let b = R24(w.z, bitcast<i32>(w.w));
    let more = vec4<u32>(cases[at + 5u], cases[at + 6u], cases[at + 7u], cases[at + 8u]);
    var wide = vec4<u32>(0u);
    var result = vec2<u32>(0u);
    switch cases[at] {
        case 0u: { result = fields(r24_mul(a, b)); }
        case 1u: { result = fields(r24_div(a, b)); }
        case 2u: { result = fields(r24_add(a, b)); }
        case 3u: { result.x = u32(r24_less(a, b)); }
        case 4u: { result = fields(r24_sqrt(w, bitcast<i32>(cases[at + 5u]))); }
        case 5u: { result.x = multiply_bits(w.x, b); }
        case 6u: { result = fields(r24_from_bits(w.x)); }
        case 8u: { wide = wide_128_add(w, more); }
        case 9u: { wide = wide_128_shl(w, more.x); }
        case 10u: { wide = wide_128_shr(w, more.x); }
        case 11u: { wide.x = wide_128_bits(w); }
        case 12u: { wide = whole_sum(w, more); }
        case 13u: { result = fields(r24_inverse_product(a, b)); }
        default: { result.x = shift_round(Wide(w.x, w.y), w.z, w.w != 0u); }
    }
    results[id.x] = vec4<u32>(result, 0u, 0u) + wide;
}
";

fn on_gpu(gpu: &Context, cases: &[Case]) -> Vec<[u32; 2]> {
    let words = cases.iter().flat_map(|case| {
        let [a, b, c, d, e] = case.words;
        [case.op as u32, a, b, c, d, e, 0, 0, 0]
    });
    run(gpu, &words.collect::<Vec<_>>()).into_iter().map(|[x, y, ..]| [x, y]).collect()
}

/// Nine words a case: what to do, and what with.
fn run(gpu: &Context, words: &[u32]) -> Vec<[u32; 4]> {
    let device = gpu.device();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("exact"),
        source: wgpu::ShaderSource::Wgsl(
            [include_str!("../shaders/exact.wgsl"), include_str!("../shaders/wide_128.wgsl"), MAIN]
                .concat()
                .into(),
        ),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("exact"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let count = words.len() / 9;
    let input = runner::upload(gpu, bytemuck::cast_slice(words));
    let output = runner::upload(gpu, &vec![0xff; count * 16]);
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            wgpu::BindGroupEntry { binding: 0, resource: input.as_entire_binding() },
            wgpu::BindGroupEntry { binding: 1, resource: output.as_entire_binding() },
        ],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(u32::try_from(count.div_ceil(64)).unwrap(), 1, 1);
    drop(pass);
    gpu.queue().submit([encoder.finish()]);
    bytemuck::pod_collect_to_vec(&runner::download(gpu, &output).unwrap())
}

/// By one division of 128-bit integers.
fn inverse_product(a: R24, b: R24) -> R24 {
    let product = u128::from(a.significand) * u128::from(b.significand);
    let (quotient, rest) = ((1u128 << 100) / product, (1u128 << 100) % product);
    exact::round(quotient | u128::from(rest != 0), -100 - a.exponent - b.exponent)
}

fn on_reference(case: &Case) -> [u32; 2] {
    let fields = |v: R24| [v.significand, v.exponent.cast_unsigned()];
    let (a, b) = case.operands();
    match case.op {
        Op::Mul => fields(exact::mul(a, b)),
        Op::Div => fields(exact::div(a, b).unwrap()),
        Op::Add => fields(exact::add(a, b)),
        Op::InverseProduct => fields(inverse_product(a, b)),
        Op::Less => [u32::from(exact::compare(a, b) == Ordering::Less), 0],
        Op::Sqrt => fields(exact::sqrt(case.radicand(), case.words[4].cast_signed())),
        Op::Times => [apply::encode(Format::F32, case.words[0], b).unwrap_or(0x7f80_0000), 0],
        Op::FromBits => fields(R24::from_f32(f32::from_bits(case.words[0])).unwrap()),
        Op::Shift => {
            // The reference has no remainder flag: a last bit that is shifted out together with another does the same.
            let ([_, _, shift, more, _], wide) = (case.words, case.wide());
            let (value, shift) = if wide >> 62 == 0 { (wide << 2, shift + 2) } else { (wide, shift) };
            [u32::try_from(exact::shift_right_even(value | u64::from(more), shift)).unwrap(), 0]
        }
    }
}

/// `value / 2^shift`, to nearest, ties to even.
fn shifted(value: u128, shift: u32) -> u32 {
    let (kept, lost) = (value >> shift, value & ((1 << shift) - 1));
    let up = match lost.cmp(&(1 << (shift - 1))) {
        Ordering::Less => 0,
        Ordering::Equal => kept & 1,
        Ordering::Greater => 1,
    };
    u32::try_from(kept + up).unwrap()
}

/// A number of a true value or of a midpoint: the first times 2 to the second.
type Number = (u128, i32);

fn compare((m, e): Number, (n, k): Number) -> Ordering {
    if m == 0 || n == 0 {
        return m.cmp(&n);
    }
    let (m_zeros, n_zeros) = (m.leading_zeros(), n.leading_zeros());
    let (m_top, n_top) = (e - m_zeros.cast_signed(), k - n_zeros.cast_signed());
    m_top.cmp(&n_top).then((m << m_zeros).cmp(&(n << n_zeros)))
}

/// Whether a result is right, given how the true value compares to the midpoints below and above it.
fn nearest(even: bool, below: Ordering, above: Ordering) -> Option<Found> {
    let tie = below.is_eq() || above.is_eq();
    let right = below.is_ge() && above.is_le() && (even || !tie);
    right.then_some(if tie { Found::Tie } else { Found::Nearest })
}

#[derive(PartialEq)]
enum Found {
    Nearest,
    Tie,
}

fn nearest_r24(got: R24, versus: impl Fn(Number) -> Ordering) -> Option<Found> {
    let (s, e) = (u128::from(got.significand), got.exponent);
    if s >> 23 != 1 {
        return None;
    }
    // Below a power of two the neighbour is at half the distance.
    let below = if s == 1 << 23 { (4 * s - 1, e - 2) } else { (2 * s - 1, e - 1) };
    nearest(s % 2 == 0, versus(below), versus((2 * s + 1, e - 1)))
}

/// The value of f32 bits; those of infinity stand for 2^128.
fn number(bits: u32) -> Number {
    let (field, fraction) = (bits >> 23, u128::from(bits & 0x7f_ffff));
    if field == 0 { (fraction, -149) } else { (fraction | 1 << 23, field.cast_signed() - 150) }
}

/// `None`: wrong. Else whether the true value was a tie.
fn judge(case: &Case, [x, y]: [u32; 2]) -> Option<Found> {
    let got = R24 { significand: x, exponent: y.cast_signed() };
    let is = |right: bool| right.then_some(Found::Nearest);
    let (a, b) = case.operands();
    let (sa, sb) = (u128::from(a.significand), u128::from(b.significand));
    match case.op {
        Op::Mul if sa * sb == 0 => is(got == R24::ZERO),
        Op::Div if sa == 0 => is(got == R24::ZERO),
        Op::Sqrt if case.radicand() == 0 => is(got == R24::ZERO),
        Op::Add if sa == 0 => is(got == b),
        Op::Add if sb == 0 => is(got == a),
        Op::Mul => nearest_r24(got, |n| compare((sa * sb, a.exponent + b.exponent), n)),
        Op::Div => nearest_r24(got, |(n, k)| compare((sa, a.exponent - b.exponent), (n * sb, k))),
        // 1 against n * a * b, of 73 bits at most.
        Op::InverseProduct => {
            nearest_r24(got, |(n, k)| compare((1, 0), (n * sa * sb, k + a.exponent + b.exponent)))
        }
        Op::Add => nearest_r24(got, |n| compare(sum(a, b), n)),
        Op::Sqrt => {
            let radicand = (case.radicand(), case.words[4].cast_signed());
            nearest_r24(got, |(n, k)| compare(radicand, (n * n, 2 * k)))
        }
        Op::Less => is(x == u32::from(compare((sa, a.exponent), (sb, b.exponent)).is_lt())),
        Op::FromBits => is(compare((u128::from(x), got.exponent), number(case.words[0])).is_eq()
            && (x >> 23 == 1 || got == R24::ZERO)),
        Op::Shift => {
            let [_, _, shift, more, _] = case.words;
            is(x == shifted(u128::from(case.wide()) << 2 | u128::from(more), shift + 2))
        }
        Op::Times => {
            let (m, p) = number(case.words[0]);
            let product = (m * sb, p + b.exponent);
            let midpoint_above = |bits: u32| {
                let (m, p) = number(bits);
                (2 * m + 1, p - 1)
            };
            let below = x.checked_sub(1).map_or(Ordering::Greater, |b| compare(product, midpoint_above(b)));
            match x.cmp(&0x7f80_0000) {
                Ordering::Less => nearest(x % 2 == 0, below, compare(product, midpoint_above(x))),
                Ordering::Equal => nearest(true, below, Ordering::Less),
                Ordering::Greater => None,
            }
        }
    }
}

/// The sum, or a number that compares to all midpoints as the sum does: nothing lies between a number and the midpoint
/// above it, so of something far below only that it is there counts.
fn sum(a: R24, b: R24) -> Number {
    let (high, low) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let high_part = u128::from(high.significand);
    match high.exponent - low.exponent {
        distance @ 0..=100 => ((high_part << distance) + u128::from(low.significand), low.exponent),
        _ => ((high_part << 100) + 1, high.exponent - 100),
    }
}

/// The float unit's answer, where operands and result are f32 and normal.
fn on_the_cpu(case: &Case) -> Option<[u32; 2]> {
    let normal = |v: f32| v.is_normal().then_some(v);
    let float = |v: R24| normal(v.to_f64() as f32).filter(|&f| f64::from(f) == v.to_f64());
    let (a, b) = case.operands();
    let value = match case.op {
        Op::Mul => float(a)? * float(b)?,
        Op::Div => float(a)? / float(b)?,
        Op::Add => float(a)? + float(b)?,
        Op::Less => return Some([u32::from(float(a)? < float(b)?), 0]),
        Op::Sqrt => {
            let significand = u32::try_from(case.radicand()).ok().filter(|s| s >> 24 == 0)?;
            float(R24 { significand, exponent: case.words[4].cast_signed() })?.sqrt()
        }
        Op::Times => {
            return Some([normal(normal(f32::from_bits(case.words[0]))? * float(b)?)?.to_bits(), 0]);
        }
        Op::FromBits | Op::Shift | Op::InverseProduct => return None,
    };
    let bits = normal(value)?.to_bits();
    Some([bits & 0x7f_ffff | 1 << 23, (bits >> 23).wrapping_sub(150)])
}

/// Checks every result; ties per operation.
fn check(who: &str, cases: &[Case], results: &[[u32; 2]]) -> [usize; 14] {
    assert_eq!(cases.len(), results.len());
    let mut ties = [0; 14];
    for (case, &got) in cases.iter().zip(results) {
        match judge(case, got) {
            None => panic!("{who}: {case:x?} gave {got:x?}"),
            Some(found) => ties[case.op as usize] += usize::from(found == Found::Tie),
        }
    }
    ties
}

#[test]
fn the_reference_is_exact() {
    let cases = cases();
    let ties = check("reference", &cases, &cases.iter().map(on_reference).collect::<Vec<_>>());
    for op in [Op::Mul, Op::Add, Op::Sqrt, Op::Times] {
        assert!(ties[op as usize] > 100, "{op:?}: {ties:?}");
    }
    // A quotient of two 24-bit numbers is never a 25-bit one, and no inverse of a number is, but of a power of two.
    assert_eq!((ties[Op::Div as usize], ties[Op::InverseProduct as usize]), (0, 0));
}

/// What a step divides by, for scales and divisors of f32, subnormals included: the CPU's and every adapter's.
#[test]
fn the_inverse_of_scale_and_divisor_is_rounded_once() {
    let numbers = [
        1,
        3,
        0x7f_ffff,
        0x80_0000,
        0x80_0001,
        0x3f80_0000,
        0x4040_0000,
        0x447a_0000,
        0x7f00_0000,
        0x7f7f_ffff,
    ];
    let (mut cases, mut want) = (Vec::new(), Vec::new());
    for scale in numbers {
        for divisor in numbers {
            let [a, b] = [scale, divisor].map(|bits| R24::from_f32(f32::from_bits(bits)).unwrap());
            let inverse = norm_finish::inverse(f32::from_bits(scale), f32::from_bits(divisor)).unwrap();
            assert_eq!(inverse, inverse_product(a, b), "{scale:x} {divisor:x}");
            let exponents = [a.exponent, b.exponent].map(i32::cast_unsigned);
            let words = [a.significand, exponents[0], b.significand, exponents[1], 0];
            cases.push(Case { op: Op::InverseProduct, words });
            want.push([inverse.significand, inverse.exponent.cast_unsigned()]);
        }
    }
    check("reference", &cases, &want);
    for gpu in gpus() {
        assert_eq!(on_gpu(&gpu.context, &cases), want, "{}", label(&gpu.info));
    }
    for bad in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!((norm_finish::inverse(bad, 1.0), norm_finish::inverse(1.0, bad)), (None, None), "{bad}");
    }
}

#[test]
fn every_adapter_is_exact() {
    let cases = cases();
    for gpu in gpus() {
        check(&label(&gpu.info), &cases, &on_gpu(&gpu.context, &cases));
    }
}

#[test]
fn the_float_unit_agrees_in_range() {
    let cases = cases();
    let mut compared = [0; 14];
    for gpu in gpus() {
        for (case, got) in cases.iter().zip(on_gpu(&gpu.context, &cases)) {
            if let Some(want) = on_the_cpu(case) {
                compared[case.op as usize] += 1;
                assert_eq!(got, want, "{}: {case:x?}", label(&gpu.info));
            }
        }
    }
    for op in [Op::Mul, Op::Div, Op::Add, Op::Less, Op::Sqrt, Op::Times] {
        assert!(compared[op as usize] > 10_000, "{op:?}: {compared:?}");
    }
}

#[test]
fn the_judge_sees_a_wrong_bit() {
    for case in cases().iter().step_by(7) {
        let right = on_reference(case);
        for wrong in [[right[0] ^ 1, right[1]], [right[0].wrapping_add(1), right[1]]] {
            assert!(judge(case, wrong).is_none(), "{case:x?} {wrong:x?}");
        }
    }
}

/// The words of `v`, highest first.
fn words_of(v: u128) -> [u32; 4] {
    [96, 64, 32, 0].map(|bit| (v >> bit) as u32)
}

/// 128-bit integers, which u128 knows, and the sum of signed columns.
#[test]
fn wide_integers_are_those_of_the_cpu() {
    let mut state = 128u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let mut cases: Vec<u32> = Vec::new();
    let mut want: Vec<[u32; 4]> = Vec::new();
    for round in 0..20_000 {
        let mut wide = || -> u128 {
            let runs = (0..4)
                .fold(0u128, |v, _| v << 32 | u128::from([0, 0xffff_ffff, next()][next() as usize % 3]));
            runs >> (next() % 129).min(127)
        };
        let (a, b) = (wide(), wide());
        let by = if round % 8 == 0 {
            [0, 32, 64, 96, 127, 128, 129, 400][round / 8 % 8]
        } else {
            next() as u32 % 130
        };
        let mut case = |op: u32, first: [u32; 4], second: [u32; 4], result: [u32; 4]| {
            cases.push(op);
            cases.extend(first.into_iter().chain(second));
            want.push(result);
        };
        case(8, words_of(a), words_of(b), words_of(a.wrapping_add(b)));
        case(9, words_of(a), [by, 0, 0, 0], words_of(a.checked_shl(by).unwrap_or(0)));
        case(10, words_of(a), [by, 0, 0, 0], words_of(a.checked_shr(by).unwrap_or(0)));
        case(11, words_of(a), [0; 4], [128 - a.leading_zeros(), 0, 0, 0]);
        // Columns as large as 2^39 elements make them; what they add up to is not negative.
        let columns = [59, 59, 58, 58].map(|bits: u32| (next() << 32 | next()).cast_signed() >> (63 - bits));
        let columns = [columns[0].saturating_abs() | 1 << 20, columns[1], columns[2], columns[3]];
        let sum = columns.into_iter().fold(0i128, |sum, c| (sum << 20) + i128::from(c));
        assert!(sum >= 0);
        case(12, columns.map(|c| c as u32), columns.map(|c| (c >> 32) as u32), words_of(sum.cast_unsigned()));
    }
    for gpu in gpus() {
        for (i, (got, want)) in run(&gpu.context, &cases).iter().zip(&want).enumerate() {
            assert_eq!(got, want, "{}: {:x?}", label(&gpu.info), &cases[9 * i..][..9]);
        }
    }
}
