//! An optimizer whose gradients the tests can set and read.

use std::time::Duration;

use gradclip::plan::PlanLimits;
use gradclip::reference::norm_finish::{inverse, norm};
use gradclip::reference::norm_partials::{census, ledger};
use gradclip::reference::{Outcome, TensorBits, step};
use gradclip::{
    ClipNorm, Context, Format, GradScaler, GradSet, LossScale, Prepare, Recorded, ScalerConfig, Step,
    TensorNorm, TensorSlice, UpdateReport, wgpu,
};

use crate::common::runner::{download, upload};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// Name, format and bytes of a gradient tensor.
pub type Tensor = (&'static str, Format, Vec<u8>);

pub struct Optimizer {
    pub set: GradSet,
    pub page: wgpu::Buffer,
    tensors: Vec<Tensor>,
    offsets: Vec<u64>,
}

impl Optimizer {
    /// The tensors in one buffer, one after the other.
    pub fn new(gpu: &Context, name: &str, tensors: &[Tensor], limits: Option<PlanLimits>) -> Self {
        let (offsets, image) = arrange(tensors, 4);
        let page = upload(gpu, &image);
        let mut builder = GradSet::builder(name);
        for ((tensor, _, _), slice) in tensors.iter().zip(slices(tensors, &offsets, &page)) {
            builder = builder.tensor(*tensor, slice);
        }
        if let Some(limits) = limits {
            builder = builder.plan_limits(limits);
        }
        let set = builder.build(gpu).unwrap();
        set.prepare(Prepare::ALL).unwrap();
        Self { set, page, tensors: tensors.to_vec(), offsets }
    }

    /// One f32 element, so that the norm is its magnitude over the scale.
    pub fn of_one(gpu: &Context, name: &str) -> Self {
        Self::new(gpu, name, &[("gradient", Format::F32, vec![0; 4])], None)
    }

    /// Writes the first element with the next submission.
    pub fn put(&self, gpu: &Context, gradient: f32) {
        gpu.queue().write_buffer(&self.page, self.offsets[0], &gradient.to_le_bytes());
    }

    /// Moves the gradients to another buffer, `gap` bytes apart.
    pub fn rebind(&mut self, gpu: &Context, tensors: &[Tensor], gap: u64) {
        let (offsets, image) = arrange(tensors, gap);
        let page = upload(gpu, &image);
        self.set.rebind(&slices(tensors, &offsets, &page)).unwrap();
        (self.page, self.offsets, self.tensors) = (page, offsets, tensors.to_vec());
    }

    /// The gradients as they are on the GPU.
    pub fn gradients(&self, gpu: &Context) -> Vec<Tensor> {
        let image = download(gpu, &self.page).unwrap();
        let range = |(i, tensor): (usize, &Tensor)| {
            let at = self.offsets[i] as usize;
            (tensor.0, tensor.1, image[at..at + tensor.2.len()].to_vec())
        };
        self.tensors.iter().enumerate().map(range).collect()
    }
}

fn arrange(tensors: &[Tensor], gap: u64) -> (Vec<u64>, Vec<u8>) {
    let mut image = vec![0xff; gap as usize];
    let mut offsets = Vec::new();
    for (_, _, bytes) in tensors {
        offsets.push(image.len() as u64);
        image.extend(bytes);
        let end = image.len().next_multiple_of(4) + gap as usize;
        image.resize(end, 0xff);
    }
    (offsets, image)
}

fn slices<'a>(tensors: &[Tensor], offsets: &[u64], page: &'a wgpu::Buffer) -> Vec<TensorSlice<'a>> {
    let slice = |((_, format, bytes), &offset): (&Tensor, &u64)| TensorSlice {
        buffer: page,
        offset,
        len: bytes.len() as u64 / format.size(),
        format: *format,
    };
    tensors.iter().zip(offsets).map(slice).collect()
}

pub fn f32s(name: &'static str, values: &[f32]) -> Tensor {
    (name, Format::F32, crate::common::f32s(values))
}

pub fn f16s(name: &'static str, values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
    (name, Format::F16, bytes)
}

pub fn bf16s(name: &'static str, values: &[f32]) -> Tensor {
    let bytes = values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect();
    (name, Format::Bf16, bytes)
}

/// What the CPU reference makes of a step.
pub fn expected(tensors: &[Tensor], scale: f32, clip: Option<ClipNorm>) -> Outcome {
    let mut bytes: Vec<Vec<u8>> = tensors.iter().map(|t| t.2.clone()).collect();
    let mut bits: Vec<TensorBits<'_>> =
        tensors.iter().zip(&mut bytes).map(|(t, bytes)| TensorBits::new(t.1, bytes)).collect();
    step(&mut bits, LossScale::new(scale).unwrap(), clip)
}

/// The reference's norm of one tensor by itself, with its name; no number if it is not finite.
pub fn named_norm(tensor: &Tensor, scale: f32) -> TensorNorm {
    TensorNorm { name: tensor.0.into(), norm: norm_of(tensor, scale) }
}

/// The reference's norm of one tensor by itself; `None` if it is not finite.
pub fn norm_of(tensor: &Tensor, scale: f32) -> Option<f64> {
    let (_, format, bytes) = tensor;
    let inverse = inverse(scale, 1.0).unwrap();
    census(*format, bytes).first.is_none().then(|| norm(&ledger(*format, bytes), inverse).to_f64())
}

pub fn clip(max_norm: f32) -> ClipNorm {
    ClipNorm::new(max_norm).unwrap()
}

/// A scaler with a scale of 8 that never moves.
pub fn steady(gpu: &Context, reports: usize) -> GradScaler {
    GradScaler::new(gpu, ScalerConfig::constant(8.0)).unwrap().with_reports(reports)
}

pub fn encoder(gpu: &Context) -> wgpu::CommandEncoder {
    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// Records a step without a limit.
pub fn record(
    scaler: &GradScaler,
    optimizer: &Optimizer,
    encoder: &mut wgpu::CommandEncoder,
) -> Step<Recorded> {
    scaler.begin(&optimizer.set).unwrap().unscale().record(encoder).unwrap()
}

/// An encoder with a step and its update.
pub fn update(gpu: &Context, scaler: &GradScaler, optimizer: &Optimizer) -> wgpu::CommandEncoder {
    let mut encoder = encoder(gpu);
    let step = record(scaler, optimizer, &mut encoder);
    scaler.update(&mut encoder, [step]).unwrap();
    encoder
}

pub fn submit(gpu: &Context, encoder: wgpu::CommandEncoder) {
    gpu.queue().submit([encoder.finish()]);
}

/// The next report, which must come.
pub fn next(scaler: &GradScaler) -> UpdateReport {
    scaler.wait_report(PATIENCE).unwrap().expect("a report is on its way")
}
