//! Parts of gradients in sets of their own.

use gradclip::reference::{self, TensorBits};
use gradclip::{ClipNorm, Context, Error, Format, GradSet, Ledger, LossScale, Report, TensorSlice, wgpu};

use crate::common::runner::{download, upload};

/// Format and bytes of each tensor.
pub type Tensors = Vec<(Format, Vec<u8>)>;

/// One part on one device: a buffer a tensor.
pub struct Part {
    pub gpu: Context,
    pub set: GradSet,
    buffers: Vec<wgpu::Buffer>,
    lens: Vec<usize>,
}

impl Part {
    pub fn new(gpu: &Context, tensors: &Tensors) -> Self {
        let buffers: Vec<wgpu::Buffer> = tensors.iter().map(|(_, bytes)| upload(gpu, bytes)).collect();
        let mut builder = GradSet::builder("part");
        for (i, ((format, bytes), buffer)) in tensors.iter().zip(&buffers).enumerate() {
            let len = bytes.len() as u64 / format.size();
            builder = builder.tensor(i.to_string(), TensorSlice { buffer, offset: 0, len, format: *format });
        }
        let lens = tensors.iter().map(|t| t.1.len()).collect();
        let set = builder.build(gpu).unwrap();
        set.prepare([gradclip::Prepare::Ledger, gradclip::Prepare::L1]).unwrap();
        Self { gpu: gpu.clone(), set, buffers, lens }
    }

    /// Records with `record` and submits.
    pub fn submit<T>(&self, record: impl FnOnce(&mut wgpu::CommandEncoder) -> T) -> T {
        let mut encoder = self.gpu.device().create_command_encoder(&Default::default());
        let recorded = record(&mut encoder);
        self.gpu.queue().submit([encoder.finish()]);
        recorded
    }

    pub fn measure(&self, scale: LossScale, clip: Option<ClipNorm>) -> Result<Ledger, Error> {
        self.submit(|encoder| self.set.record_ledger(encoder, scale, clip))?;
        self.set.read_ledger()
    }

    pub fn finish(&self, merged: &Ledger) -> Result<Report, Error> {
        self.submit(|encoder| self.set.record_merged(encoder, merged))?;
        self.set.read_report()
    }

    /// Other gradients in the same place.
    pub fn replace(&self, tensor: usize, bytes: &[u8]) {
        self.gpu.queue().write_buffer(&self.buffers[tensor], 0, bytes);
    }

    pub fn bytes(&self) -> Vec<Vec<u8>> {
        let all = self.buffers.iter().zip(&self.lens);
        all.map(|(buffer, &len)| download(&self.gpu, buffer).unwrap()[..len].to_vec()).collect()
    }
}

/// Cuts every tensor at the same parts of its words: `cuts[i]..cuts[i + 1]` of 16ths are the i-th part's.
pub fn cut(tensors: &Tensors, cuts: &[usize]) -> Vec<Tensors> {
    let part = |pair: &[usize]| {
        let of = |(format, bytes): &(Format, Vec<u8>)| {
            let words = bytes.len() / 4;
            let at = |cut: usize| if cut == 16 { bytes.len() } else { words * cut / 16 * 4 };
            (*format, bytes[at(pair[0])..at(pair[1])].to_vec())
        };
        tensors.iter().map(of).collect()
    };
    cuts.windows(2).map(part).collect()
}

/// The parts' bytes put together again.
pub fn join(parts: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    (0..parts[0].len()).map(|t| parts.iter().flat_map(|part| part[t].clone()).collect()).collect()
}

/// The step of the whole on the CPU, and the bytes after it.
pub fn on_reference(
    tensors: &Tensors,
    scale: LossScale,
    clip: Option<ClipNorm>,
) -> (reference::Outcome, Vec<Vec<u8>>) {
    let mut bytes: Vec<Vec<u8>> = tensors.iter().map(|t| t.1.clone()).collect();
    let outcome = reference::step(&mut bits(tensors, &mut bytes), scale, clip);
    (outcome, bytes)
}

/// Tensors as the reference takes them.
pub fn bits<'a>(tensors: &Tensors, bytes: &'a mut [Vec<u8>]) -> Vec<TensorBits<'a>> {
    tensors.iter().zip(bytes).map(|(t, bytes)| TensorBits::new(t.0, bytes)).collect()
}

/// All ledgers added up.
pub fn merge(ledgers: &[Ledger]) -> Ledger {
    let (first, rest) = ledgers.split_first().expect("some part");
    let mut merged = first.clone();
    rest.iter().for_each(|ledger| merged.merge(ledger).unwrap());
    merged
}
