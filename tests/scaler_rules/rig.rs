//! An optimizer with one gradient tensor, and the steps of it.

use gradclip::reference::{Outcome, TensorBits, step};
use gradclip::{
    ClipNorm, Context, Error, Format, GradScaler, GradSet, LossScale, ScalerConfig, ScalerState, SetState,
    TensorSlice, Verdict, wgpu,
};

use crate::common::{adapters, gpus, runner};

/// Runs a test on every adapter.
pub fn each(test: impl Fn(&Context)) {
    for gpu in gpus() {
        eprintln!("on {}", adapters::label(&gpu.info));
        test(&gpu.context);
    }
}

/// One optimizer with one gradient tensor.
pub struct Optimizer {
    context: Context,
    format: Format,
    pub page: wgpu::Buffer,
    pub set: GradSet,
}

impl Optimizer {
    pub fn new(gpu: &Context, name: &str, gradient: &[f32]) -> Self {
        Self::of(gpu, name, Format::F32, &f32_bytes(gradient))
    }

    /// An even number of f16 elements, given by their bits.
    pub fn f16(gpu: &Context, name: &str, bits: &[u16]) -> Self {
        Self::of(gpu, name, Format::F16, &f16_bytes(bits))
    }

    fn of(gpu: &Context, name: &str, format: Format, bytes: &[u8]) -> Self {
        let page = runner::upload(gpu, bytes);
        let slice = TensorSlice { buffer: &page, offset: 0, len: bytes.len() as u64 / format.size(), format };
        let set = GradSet::builder(name).tensor("weight", slice).build(gpu).unwrap();
        Self { context: gpu.clone(), format, page, set }
    }

    /// What backward left: there with the next submission.
    pub fn fill(&self, gradient: &[f32]) {
        assert_eq!(self.format, Format::F32);
        self.context.queue().write_buffer(&self.page, 0, &f32_bytes(gradient));
    }

    pub fn bytes(&self) -> Vec<u8> {
        runner::download(&self.context, &self.page).unwrap()
    }

    /// The bits of f32 gradients.
    pub fn bits(&self) -> Vec<u32> {
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        self.bytes().chunks_exact(4).map(word).collect()
    }

    /// What a kernel that binds the verdict sees.
    pub fn verdict(&self) -> Verdict {
        let bytes = runner::download(&self.context, self.set.verdict().buffer).unwrap();
        bytemuck::pod_read_unaligned(&bytes[..size_of::<Verdict>()])
    }
}

pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    crate::common::f32s(values)
}

pub fn f16_bytes(bits: &[u16]) -> Vec<u8> {
    bits.iter().flat_map(|b| b.to_le_bytes()).collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// The ideal rule, `max_norm / norm`.
pub fn clip(max_norm: f32) -> Option<ClipNorm> {
    Some(ClipNorm::new(max_norm).unwrap().with_eps(0.0).unwrap())
}

/// What the reference makes of a tensor.
pub fn on_reference(format: Format, bytes: &mut [u8], scale: f32, clip: Option<ClipNorm>) -> Outcome {
    step(&mut [TensorBits::new(format, bytes)], LossScale::new(scale).unwrap(), clip)
}

/// The norm of the latest step of a set.
pub fn norm(set: &GradSet) -> f64 {
    set.read_report().unwrap().total_norm.unwrap()
}

pub fn scaler(gpu: &Context, config: ScalerConfig) -> GradScaler {
    GradScaler::new(gpu, config).unwrap()
}

/// A scaler that grows after every finite step.
pub fn growing(scale: f32) -> ScalerConfig {
    ScalerConfig { init_scale: scale, growth_interval: 1, ..ScalerConfig::default() }
}

/// A scaler that grows after 2000 finite steps.
pub fn dynamic(scale: f32) -> ScalerConfig {
    ScalerConfig { init_scale: scale, ..ScalerConfig::default() }
}

pub fn encoder(gpu: &Context) -> wgpu::CommandEncoder {
    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

pub fn submit(gpu: &Context, encoder: wgpu::CommandEncoder) {
    gpu.queue().submit([encoder.finish()]);
}

/// Records a step of each optimizer, and the update.
pub fn record(
    encoder: &mut wgpu::CommandEncoder,
    scaler: &GradScaler,
    optimizers: &[&Optimizer],
    clip: Option<ClipNorm>,
) -> Result<(), Error> {
    let open = optimizers.iter().map(|o| scaler.begin(&o.set)).collect::<Result<Vec<_>, _>>()?;
    let mut recorded = Vec::new();
    for step in open {
        let step = step.unscale();
        recorded.push(match clip {
            Some(clip) => step.limit(clip).record(encoder)?,
            None => step.record(encoder)?,
        });
    }
    scaler.update(encoder, recorded)
}

/// A step of each optimizer and the update, submitted.
pub fn take(
    gpu: &Context,
    scaler: &GradScaler,
    optimizers: &[&Optimizer],
    clip: Option<ClipNorm>,
) -> Result<(), Error> {
    let mut encoder = encoder(gpu);
    record(&mut encoder, scaler, optimizers, clip)?;
    submit(gpu, encoder);
    Ok(())
}

/// What the only set of a scaler remembers, of which every step was one of the scaler's updates.
pub fn only_set(name: &str, state: &ScalerState) -> Vec<SetState> {
    let mut set = SetState::new(name, state.stepped);
    set.consecutive_skipped = state.consecutive_skipped;
    vec![set]
}

/// One step with this gradient, and the state after it.
pub fn after(gpu: &Context, scaler: &GradScaler, optimizer: &Optimizer, gradient: f32) -> ScalerState {
    optimizer.fill(&[gradient]);
    take(gpu, scaler, &[optimizer], None).unwrap();
    scaler.state_dict().unwrap()
}
