//! Small sets over buffers of their own.

use gradclip::{Context, Format, GradScaler, GradSet, Prepare, ScalerConfig, TensorSlice, wgpu};

pub use crate::common::gpus;
use crate::common::runner::{download, upload};

/// A set of one f32 tensor, prepared for everything.
pub struct Rig {
    pub gpu: Context,
    pub page: wgpu::Buffer,
    pub set: GradSet,
}

impl Rig {
    pub fn new(gpu: &Context, name: &str, gradients: &[f32]) -> Self {
        let page = upload(gpu, &crate::common::f32s(gradients));
        let set =
            GradSet::builder(name).tensor("weight", slice(&page, 0, gradients.len())).build(gpu).unwrap();
        set.prepare(Prepare::ALL).unwrap();
        Self { gpu: gpu.clone(), page, set }
    }

    /// Puts other gradients where the first were.
    pub fn put(&self, gradients: &[f32]) {
        self.gpu.queue().write_buffer(&self.page, 0, &crate::common::f32s(gradients));
    }

    pub fn gradients(&self) -> Vec<f32> {
        floats(&download(&self.gpu, &self.page).unwrap())
    }

    /// Records and submits.
    pub fn run(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
        submit(&self.gpu, record);
    }

    /// One step under a scaler.
    pub fn step(&self, scaler: &GradScaler) -> Result<(), gradclip::Error> {
        let step = scaler.begin(&self.set)?;
        self.run(|encoder| {
            let step = step.unscale().record(encoder).unwrap();
            scaler.update(encoder, [step]).unwrap();
        });
        Ok(())
    }
}

pub fn submit(gpu: &Context, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    record(&mut encoder);
    gpu.queue().submit([encoder.finish()]);
}

pub fn slice(buffer: &wgpu::Buffer, offset: u64, len: usize) -> TensorSlice<'_> {
    TensorSlice { buffer, offset, len: len as u64, format: Format::F32 }
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub fn scaler(gpu: &Context, config: ScalerConfig) -> GradScaler {
    GradScaler::new(gpu, config).unwrap()
}

/// Lets the host hear what the GPU did.
pub fn settle(gpu: &Context) {
    gpu.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
}

/// The same on every adapter.
#[cfg(feature = "serde")]
pub fn settle_all() {
    gpus().iter().for_each(|gpu| settle(&gpu.context));
}
