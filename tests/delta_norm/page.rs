//! A parameter tensor that tests can set, its measure, and the CPU's answer.

use gradclip::reference::{TensorBits, step};
use gradclip::{Context, DeltaNorm, Format, LossScale, Report, TensorSlice, wgpu};

use crate::common::f32s;
use crate::common::runner::upload;

/// An element's value.
pub fn widen(format: Format, bytes: &[u8]) -> f32 {
    match format {
        Format::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Format::F16 => half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
        Format::Bf16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
    }
}

/// Norm and `found_inf` of the differences, from the CPU.
pub fn expected(format: Format, before: &[u8], after: &[u8]) -> (f64, bool) {
    let size = format.size() as usize;
    let pairs = before.chunks_exact(size).zip(after.chunks_exact(size));
    let differences: Vec<f32> = pairs.map(|(b, a)| widen(format, a) - widen(format, b)).collect();
    let mut bytes = f32s(&differences);
    let outcome = step(&mut [TensorBits::new(Format::F32, &mut bytes)], LossScale::ONE, None);
    (outcome.total_norm.to_f64(), outcome.found_inf)
}

/// A buffer whose bytes outside the tensor are NaN in every format.
pub struct Page {
    pub buffer: wgpu::Buffer,
    pub offset: usize,
    pub format: Format,
    pub len: usize,
}

impl Page {
    pub fn new(gpu: &Context, format: Format, len: usize, offset: usize) -> Self {
        let bytes = vec![0xff; (offset + format.words(len as u64) as usize * 4 + 8).next_multiple_of(4)];
        Self { buffer: upload(gpu, &bytes), offset, format, len }
    }

    pub fn slice(&self) -> TensorSlice<'_> {
        TensorSlice {
            buffer: &self.buffer,
            offset: self.offset as u64,
            len: self.len as u64,
            format: self.format,
        }
    }

    /// With the next submission.
    pub fn put(&self, gpu: &Context, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len * self.format.size() as usize);
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0xff);
        gpu.queue().write_buffer(&self.buffer, self.offset as u64, &padded);
    }
}

pub fn measure(gpu: &Context, delta: &DeltaNorm, page: &Page, before: &[u8], after: &[u8]) -> Report {
    let encoder = || gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    page.put(gpu, before);
    let mut first = encoder();
    delta.record_before(&mut first);
    gpu.queue().submit([first.finish()]);
    page.put(gpu, after);
    let mut second = encoder();
    delta.record_after(&mut second).unwrap();
    gpu.queue().submit([second.finish()]);
    delta.read_report().unwrap()
}

pub fn of_one(gpu: &Context, page: &Page) -> DeltaNorm {
    DeltaNorm::new(gpu, "moved", [("weight".to_string(), page.slice())]).unwrap()
}

#[track_caller]
pub fn check(gpu: &Context, delta: &DeltaNorm, page: &Page, before: &[u8], after: &[u8]) {
    let report = measure(gpu, delta, page, before, after);
    let (norm, found_inf) = expected(page.format, before, after);
    let got = (report.total_norm.map(f64::to_bits), report.found_inf);
    let wanted = ((!found_inf).then_some(norm.to_bits()), found_inf);
    assert_eq!(got, wanted, "{:?} for {norm}", report.total_norm);
}

/// Numbers without a pattern.
pub fn random(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9);
        let mixed = (state ^ (state >> 16)).wrapping_mul(0x85eb_ca6b);
        let mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
        mixed ^ (mixed >> 16)
    }
}

/// Words of a format, all finite.
pub fn finite(format: Format, seed: u32, len: usize) -> Vec<u8> {
    let mut random = random(seed);
    let element = |_| match format {
        Format::F32 => loop {
            let bits = random();
            if f32::from_bits(bits).is_finite() && bits & 0x7f80_0000 < 0x7f00_0000 {
                return bits.to_le_bytes().to_vec();
            }
        },
        Format::F16 => loop {
            let bits = random() as u16;
            if half::f16::from_bits(bits).is_finite() {
                return bits.to_le_bytes().to_vec();
            }
        },
        Format::Bf16 => loop {
            let bits = random() as u16;
            if half::bf16::from_bits(bits).is_finite() && bits & 0x7f80 < 0x7f00 {
                return bits.to_le_bytes().to_vec();
            }
        },
    };
    (0..len).flat_map(element).collect()
}
