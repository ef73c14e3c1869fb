//! Mode -> what was written, what the verdict says, what a kernel does: one optimizer kernel serves all.

use gradclip::reference::{TensorBits, step};
use gradclip::{
    ClipNorm, Context, Format, GradSet, InPlace, Limit, OneFactor, VERDICT_WGSL, scaled_wgsl, wgpu,
};

use crate::common::runner::{download, upload};
use crate::support::{Rig, floats, gpus, submit};

/// Plain SGD with a rate of 1: parameter -= gradient, whatever the mode of the step was.
struct Optimizer {
    pipeline: wgpu::ComputePipeline,
}

impl Optimizer {
    fn new(gpu: &Context) -> Self {
        let own = "
            struct Wide { mine: u32 }
            struct R24 { mine: u32 }
            @group(0) @binding(0) var<storage, read> verdict: GradclipVerdict;
            @group(0) @binding(1) var<storage, read> gradients: array<f32>;
            @group(0) @binding(2) var<storage, read_write> parameters: array<f32>;
            @compute @workgroup_size(64)
            fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                if verdict.skip == 1u || id.x >= arrayLength(&parameters) { return; }
                parameters[id.x] -= gradclip_scaled_gradient(verdict, gradients[id.x]);
            }";
        let text = [VERDICT_WGSL, scaled_wgsl(), own].concat();
        let module = gpu.device().create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("optimizer"),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        let pipeline = gpu.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("optimizer"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        Self { pipeline }
    }

    fn step(&self, gpu: &Context, set: &GradSet, gradients: &wgpu::Buffer, parameters: &wgpu::Buffer) {
        let resources = [
            wgpu::BindingResource::Buffer(set.verdict()),
            gradients.as_entire_binding(),
            parameters.as_entire_binding(),
        ];
        let entries: Vec<_> = (0..)
            .zip(resources)
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        let group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        submit(gpu, |encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        });
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    gradients: [f32; 2],
    mode: Mode,
    /// What the buffer of the gradients holds after the step.
    written: [f32; 2],
    /// skip, apply.
    verdict: (u32, u32),
    /// What the optimizer stepped by.
    update: [f32; 2],
}

enum Mode {
    InPlace(Limit<OneFactor>),
    Alone(Limit<InPlace>),
    Deferred(Limit<OneFactor>),
}

fn rows() -> Vec<Row> {
    let ideal = || Limit::norm(1.0).eps(0.0);
    let clip = ClipNorm::new(0.5).unwrap().with_eps(0.0).unwrap();
    let row = |name, gradients, mode, written, verdict, update| Row {
        name,
        gradients,
        mode,
        written,
        verdict,
        update,
    };
    // (0.4, 0.5) has a norm above 0.5.
    let mut bytes = crate::common::f32s(&[0.4 * 8.0, 2.3 * 8.0]);
    let limit = Limit::value(0.5).then_norm(clip);
    let outcome = step(&mut [TensorBits::new(Format::F32, &mut bytes)], 8.0, limit);
    let (rest, shrunk) = (0.41f64.sqrt(), 0.5 / 0.41f64.sqrt());
    assert!((outcome.total_norm.to_f64() - rest).abs() < 1e-7);
    let both = [floats(&bytes)[0], floats(&bytes)[1]];
    assert!(
        (f64::from(both[0]) - 0.4 * shrunk).abs() < 1e-7 && (f64::from(both[1]) - 0.5 * shrunk).abs() < 1e-7
    );
    let (given, clipped) = ([24.0, 32.0], [0.6, 0.8]);
    vec![
        row("in place", given, Mode::InPlace(ideal()), clipped, (0, 0), clipped),
        row("in place, no limit", given, Mode::InPlace(Limit::none()), [3.0, 4.0], (0, 0), [3.0, 4.0]),
        row("deferred", given, Mode::Deferred(ideal()), given, (0, 1), clipped),
        row(
            "deferred, factor 1",
            [0.0, 0.0],
            Mode::Deferred(Limit::coefficient(8.0)),
            [0.0; 2],
            (0, 0),
            [0.0; 2],
        ),
        row("each tensor", given, Mode::Alone(Limit::each_tensor(1.0).eps(0.0)), clipped, (0, 0), clipped),
        row("value", given, Mode::Alone(Limit::value(3.5)), [3.0, 3.5], (0, 0), [3.0, 3.5]),
        row(
            "p13: value, then norm",
            [0.4 * 8.0, 2.3 * 8.0],
            Mode::Alone(Limit::value(0.5).then_norm(clip)),
            both,
            (0, 0),
            both,
        ),
        row("skipped", [24.0, f32::NAN], Mode::InPlace(ideal()), [24.0, f32::NAN], (1, 0), [0.0; 2]),
        row(
            "skipped, deferred",
            [24.0, f32::INFINITY],
            Mode::Deferred(ideal()),
            [24.0, f32::INFINITY],
            (1, 0),
            [0.0; 2],
        ),
        row(
            "skipped, alone",
            [24.0, f32::NAN],
            Mode::Alone(Limit::value(1.0)),
            [24.0, f32::NAN],
            (1, 0),
            [0.0; 2],
        ),
        row("above", given, Mode::InPlace(ideal().skip_above(4.0)), given, (1, 0), [0.0; 2]),
    ]
}

#[test]
fn one_kernel_serves_every_mode() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let optimizer = Optimizer::new(gpu);
        for row in rows() {
            let rig = Rig::new(gpu, "sgd", &row.gradients);
            let parameters = upload(gpu, &crate::common::f32s(&[0.0, 0.0]));
            rig.run(|encoder| match row.mode {
                Mode::InPlace(limit) => rig.set.record(encoder, 8.0, limit).unwrap(),
                Mode::Alone(limit) => rig.set.record(encoder, 8.0, limit).unwrap(),
                Mode::Deferred(limit) => rig.set.record_deferred(encoder, 8.0, limit).unwrap(),
            });
            optimizer.step(gpu, &rig.set, &rig.page, &parameters);
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&rig.gradients()), bits(&row.written), "{}: written", row.name);
            let verdict = rig.set.read_verdict().unwrap();
            assert_eq!((verdict.skip, verdict.apply), row.verdict, "{}", row.name);
            let factor = if row.verdict == (0, 0) { 1.0 } else { verdict.factor };
            assert_eq!(verdict.factor, factor, "{}: multiplying by what is left changes nothing", row.name);
            let stepped: Vec<f32> =
                floats(&download(gpu, &parameters).unwrap()).iter().map(|p| 0.0 - p).collect();
            assert_eq!(stepped, row.update, "{}: update", row.name);
            // What the step did stays readable, and a step counts once.
            assert_eq!(verdict.taken, 1 - verdict.skip, "{}", row.name);
            assert_eq!(verdict.run, 1, "{}", row.name);
            assert_eq!(verdict.step_factor().significand == 0, verdict.skip == 1, "{}", row.name);
        }
    }
}

#[test]
fn a_kernel_that_runs_before_any_step_skips() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "sgd", &[1.0, 2.0]);
        let parameters = upload(&gpu.context, &crate::common::f32s(&[5.0, 6.0]));
        Optimizer::new(&gpu.context).step(&gpu.context, &rig.set, &rig.page, &parameters);
        assert_eq!(floats(&download(&gpu.context, &parameters).unwrap()), [5.0, 6.0]);
    }
}
