//! From digits and the whole sum of f16 to a norm: the function of `shaders/ledger.wgsl`, run on every adapter, against the
//! reference. Most sums are ties of the last rounding, and what is cut off would decide them.

mod common;

use common::adapters::label;
use common::{gpus, runner};
use gradclip::reference::norm_finish;
use gradclip::reference::norm_partials::Ledger;
use gradclip::{Context, R24, wgpu};

const MAIN: &str = "
@group(0) @binding(0) var<storage, read> cases: array<u32>;
@group(0) @binding(1) var<storage, read_write> results: array<vec2<u32>>;

fn four(at: u32) -> vec4<u32> { return vec4<u32>(cases[at], cases[at + 1u], cases[at + 2u], cases[at + 3u]); }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&results) { return; }
    let at = id.x * 14u;
    let sum = Sum(cases[at + 1u], four(at + 2u), four(at + 6u));
    let norm = norm_scaled(sum, four(at + 10u), cases[at], 0u);
    results[id.x] = vec2<u32>(norm.significand, bitcast<u32>(norm.exponent));
}
";
const WORDS: usize = 14;
const L1: u32 = 1;
const L2: u32 = 2;

fn on_gpu(gpu: &Context, words: &[u32]) -> Vec<[u32; 2]> {
    let device = gpu.device();
    let text = [
        include_str!("../shaders/exact.wgsl"),
        include_str!("../shaders/partial.wgsl"),
        include_str!("../shaders/step.wgsl"),
        include_str!("../shaders/wide_128.wgsl"),
        include_str!("../shaders/ledger.wgsl"),
        MAIN,
    ];
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("norm_scaled"),
        source: wgpu::ShaderSource::Wgsl(text.concat().into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("norm_scaled"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let count = words.len() / WORDS;
    let input = runner::upload(gpu, bytemuck::cast_slice(words));
    let output = runner::upload(gpu, &vec![0xff; count * 8]);
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

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) % n
    }
}

/// A sum of f16 whose norm is a tie, at any place that leaves it below 2^127, with something far below it or nothing.
fn tie(random: &mut Lcg, l1: bool) -> u128 {
    let odd = u128::from(1 << 24 | random.below(1 << 24) | 1);
    let exact = if l1 { odd } else { odd * odd };
    let by = random.below(1 + u64::from(exact.leading_zeros() - 1)) as u32;
    // An odd shift of a square is no square.
    let by = if l1 { by } else { by & !1 };
    let below = match random.below(3) {
        0 => 0,
        1 => 1 << random.below(u64::from(by) + 1),
        _ => (1 << by) - 1,
    };
    (exact << by) + (below & ((1 << by) - 1))
}

#[test]
fn every_adapter_cuts_as_the_reference() {
    let mut random = Lcg(48);
    let (mut words, mut want) = (Vec::new(), Vec::new());
    for round in 0..60_000 {
        let norm_type = if round % 2 == 0 { L1 } else { L2 };
        let f16 = match random.below(4) {
            0 => 0,
            1 => u128::from(random.below(1 << 32)) << random.below(90),
            _ => tie(&mut random, norm_type == L1),
        };
        let mut ledger = Ledger { f16, ..Ledger::default() };
        // The window of a kernel: its highest cell is not zero, but for cell 0.
        let top = random.below(if norm_type == L1 { 12 } else { 24 }) as usize;
        let top = if random.below(2) == 0 { top } else { 0 };
        let digits: [u64; 4] = std::array::from_fn(|i| match (i, random.below(4)) {
            (0, _) if top > 0 => 1 + random.below(1 << 32),
            (_, 0) => random.below(1 << 32) << random.below(29),
            (_, 1) => random.below(1 << 22),
            _ => 0,
        });
        for (i, digit) in digits.into_iter().enumerate() {
            ledger.cells[top + 3 - i] = digit;
        }
        words.extend([norm_type, top as u32]);
        words.extend(digits.map(|d| d as u32));
        words.extend(digits.map(|d| (d >> 32) as u32));
        words.extend([96, 64, 32, 0].map(|bit| (ledger.f16 >> bit) as u32));
        let norm = if norm_type == L1 { norm_finish::l1_norm } else { norm_finish::norm };
        want.push(norm(&ledger, R24::ONE));
    }
    for gpu in gpus() {
        for (i, (got, want)) in on_gpu(&gpu.context, &words).iter().zip(&want).enumerate() {
            let got = R24 { significand: got[0], exponent: got[1].cast_signed() };
            assert_eq!(got, *want, "{}: {:x?}", label(&gpu.info), &words[WORDS * i..][..WORDS]);
        }
    }
}
