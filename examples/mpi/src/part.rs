//! What one rank has of the gradients, on its device.

use gradclip::{ClipNorm, Context, GradSet, LossScale, Prepare, Report, TensorSlice, wgpu};
use mpi::traits::*;

use crate::data::Tensor;
use crate::{Fallible, exchange};

/// Tensors start here, as in many engines; gradclip asks for 4.
const ALIGN: usize = 256;

/// A part of each tensor, all in one buffer. Between them lie NaNs, which a step has to leave alone.
pub struct Part {
    pub set: GradSet,
    gpu: Context,
    page: wgpu::Buffer,
    /// Offset and length of each tensor, in bytes.
    places: Vec<(usize, usize)>,
}

impl Part {
    pub fn new(gpu: &Context, tensors: &[Tensor]) -> Fallible<Self> {
        use wgpu::BufferUsages as Usage;
        let mut end = 0;
        let mut places = Vec::new();
        for tensor in tensors {
            places.push((end, tensor.bytes.len()));
            end += tensor.bytes.len().next_multiple_of(ALIGN);
        }
        let page = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("gradients"),
            // A rank without gradients has a buffer too.
            size: end.max(ALIGN) as u64,
            usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            mapped_at_creation: false,
        });
        let mut builder = GradSet::builder("part");
        for (tensor, &(offset, len)) in tensors.iter().zip(&places) {
            let format = tensor.format;
            let len = len as u64 / format.size();
            let slice = TensorSlice { buffer: &page, offset: offset as u64, len, format };
            builder = builder.tensor(&tensor.name, slice);
        }
        let set = builder.build(gpu)?;
        // Recording compiles nothing. One of the steps limits an L1 norm.
        set.prepare([Prepare::Ledger, Prepare::L1])?;
        let part = Self { set, gpu: gpu.clone(), page, places };
        part.upload(tensors);
        Ok(part)
    }

    /// New gradients of the same shape: backward's work.
    pub fn upload(&self, tensors: &[Tensor]) {
        let mut page = vec![0xff; self.page.size() as usize];
        for (tensor, &(offset, len)) in tensors.iter().zip(&self.places) {
            page[offset..offset + len].copy_from_slice(&tensor.bytes);
        }
        self.gpu.queue().write_buffer(&self.page, 0, &page);
    }

    /// Submits what `record` records.
    pub fn submit<T>(&self, record: impl FnOnce(&mut wgpu::CommandEncoder) -> T) -> T {
        let mut encoder =
            self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let recorded = record(&mut encoder);
        self.gpu.queue().submit([encoder.finish()]);
        recorded
    }

    pub fn wait(&self) -> Fallible<()> {
        self.gpu.device().poll(wgpu::PollType::wait_indefinitely())?;
        Ok(())
    }

    /// The step of all ranks, of which this part is one.
    pub fn step(
        &self,
        world: &impl Communicator,
        scale: LossScale,
        clip: Option<ClipNorm>,
    ) -> Fallible<Report> {
        self.submit(|encoder| self.set.record_ledger(encoder, scale, clip))?;
        let merged = exchange::merged(world, &self.set.read_ledger()?)?;
        self.submit(|encoder| self.set.record_merged(encoder, &merged))?;
        Ok(self.set.read_report()?)
    }

    /// The step of this part alone: of one process that has everything, or a mistake.
    pub fn step_alone(&self, scale: LossScale, clip: Option<ClipNorm>) -> Fallible<Report> {
        self.submit(|encoder| self.set.record(encoder, scale, clip))?;
        Ok(self.set.read_report()?)
    }

    /// The bytes of all tensors, back to back.
    pub fn bytes(&self) -> Fallible<Vec<u8>> {
        use wgpu::BufferUsages as Usage;
        let staging = self.gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("gradients for the host"),
            size: self.page.size(),
            usage: Usage::MAP_READ | Usage::COPY_DST,
            mapped_at_creation: false,
        });
        self.submit(|encoder| encoder.copy_buffer_to_buffer(&self.page, 0, &staging, 0, staging.size()));
        staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait()?;
        let page = staging.get_mapped_range(..)?;
        let mut bytes = Vec::new();
        let mut gap = 0;
        for &(offset, len) in self.places.iter().chain([&(page.len(), 0)]) {
            if page[gap..offset].iter().any(|&byte| byte != 0xff) {
                return Err("bytes between the tensors changed".into());
            }
            gap = offset + len;
            bytes.extend_from_slice(&page[offset..gap]);
        }
        Ok(bytes)
    }
}
