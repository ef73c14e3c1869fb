//! `scaled_wgsl()` and the verdict's counts, from a kernel as an engine would write it.

mod common;

use common::{Gpu, adapters, f32s, gpus, runner};
use gradclip::reference::{TensorBits, step};
use gradclip::{ClipNorm, Format, GradSet, LossScale, TensorSlice, VERDICT_WGSL, scaled_wgsl, wgpu};

const KERNEL: &str = "
@group(0) @binding(0) var<storage, read> verdict: GradclipVerdict;
@group(0) @binding(1) var<storage, read> gradients: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    results[id.x] = gradclip_scaled_gradient_bits(verdict, gradients[id.x]);
}
";

/// What an engine's kernel makes of the gradients after a deferred step.
fn scaled(gpu: &Gpu, gradients: &[f32], scale: f32, max_norm: Option<f32>) -> Vec<f32> {
    let (context, device) = (&gpu.context, gpu.context.device());
    let input = runner::upload(context, &f32s(gradients));
    let output = runner::upload(context, &vec![0xff; gradients.len() * 4]);
    let len = gradients.len() as u64;
    let slice = TensorSlice { buffer: &input, offset: 0, len, format: Format::F32 };
    let set = GradSet::builder("set").tensor("gradient", slice).build(context).unwrap();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl([VERDICT_WGSL, scaled_wgsl(), KERNEL].concat().into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(set.verdict()) },
            wgpu::BindGroupEntry { binding: 1, resource: input.as_entire_binding() },
            wgpu::BindGroupEntry { binding: 2, resource: output.as_entire_binding() },
        ],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let clip = max_norm.map(|m| ClipNorm::new(m).unwrap().with_eps(0.0).unwrap());
    set.record_deferred(&mut encoder, LossScale::new(scale).unwrap(), clip).unwrap();
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(gradients.len() as u32, 1, 1);
    drop(pass);
    context.queue().submit([encoder.finish()]);
    let at = adapters::label(&gpu.info);
    assert_eq!(runner::download(context, &input).unwrap(), f32s(gradients), "{at}");
    let bytes = runner::download(context, &output).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn a_kernel_scales_by_any_factor() {
    for gpu in gpus() {
        let at = adapters::label(&gpu.info);
        assert_eq!(scaled(gpu, &[24.0, -32.0], 8.0, Some(1.0)), [0.6, -0.8], "{at}");
        assert_eq!(scaled(gpu, &[3.0, 4.0], 1.0, Some(5.0)), [3.0, 4.0], "{at}");
        assert_eq!(scaled(gpu, &[3.0, -4.0], 1.0, Some(0.0)), [0.0, -0.0], "{at}");
        // 2^-127 and 2^149 are no normal f32.
        let two_127 = 2f32.powi(127);
        assert_eq!(scaled(gpu, &[two_127, -1.5 * two_127], two_127, None), [1.0, -1.5], "{at}");
        let tiny = f32::from_bits(1);
        assert_eq!(
            scaled(gpu, &[2f32.powi(-120), 2f32.powi(-30)], tiny, None),
            [2f32.powi(29), 2f32.powi(119)]
        );
        // A skipped step has the factor 0.
        assert_eq!(scaled(gpu, &[1.0, f32::INFINITY], 1.0, None)[0], 0.0, "{at}");
    }
}

/// On every bit what a step in place stores, at both ends of f32 and for factors outside it.
#[test]
fn a_kernel_gets_the_bits_of_a_step_in_place() {
    let two = |n| 2f32.powi(n);
    let tiny = f32::from_bits;
    let cases: [(&[f32], f32, Option<f32>); 8] = [
        (&[1.9 * two(127)], two(127), Some(1.8)),
        (&[1.9 * two(127), -two(100)], two(126), Some(3.6)),
        (&[1.9 * two(127)], 1.5 * two(126), None),
        (&[tiny(1), tiny(3)], tiny(361), None),
        (&[tiny(1), tiny(0x007f_ffff)], tiny(3), Some(0.7)),
        (&[two(-140), 1.0], two(-127), None),
        (&[1e-6, -7e-6, 3e-5], 1.7 * two(126), None),
        (&[5.9e-39, -3.3e-39, 1e-30], 2.0, None),
    ];
    for gpu in gpus() {
        for (gradients, scale, max_norm) in cases {
            let mut bytes = f32s(gradients);
            let mut tensors = [TensorBits::new(Format::F32, &mut bytes)];
            let clip = max_norm.map(|m| ClipNorm::new(m).unwrap().with_eps(0.0).unwrap());
            let outcome = step(&mut tensors, LossScale::new(scale).unwrap(), clip);
            assert!(!outcome.found_inf, "{gradients:?}");
            let got = f32s(&scaled(gpu, gradients, scale, max_norm));
            assert_eq!(got, bytes, "{gradients:?} / {scale}, {}", adapters::label(&gpu.info));
        }
    }
}

#[test]
fn the_verdict_counts_steps_run_and_taken() {
    for gpu in gpus() {
        let context = &gpu.context;
        let page = runner::upload(context, &[0; 4]);
        let slice = TensorSlice { buffer: &page, offset: 0, len: 1, format: Format::F32 };
        let set = GradSet::builder("set").tensor("gradient", slice).build(context).unwrap();
        // Two that are taken, one that is skipped.
        for gradient in [1.0, f32::NAN, 2.0] {
            context.queue().write_buffer(&page, 0, &f32s(&[gradient]));
            let mut encoder = context.device().create_command_encoder(&Default::default());
            set.record(&mut encoder, LossScale::ONE, None).unwrap();
            context.queue().submit([encoder.finish()]);
        }
        let verdict = set.read_verdict().unwrap();
        assert_eq!((verdict.run, verdict.taken, verdict.skip), (3, 2, 0), "{}", adapters::label(&gpu.info));
    }
}
