//! A step written as one line, and what the reports need of buffers.

use std::sync::{Mutex, OnceLock, PoisonError};

use gradclip::{ClipNorm, Context, Format, GradSet, LossScale, Nonfinite, Report, TensorSlice, wgpu};

use crate::common::cases::{Answer, Input};
use crate::common::runner::{self, Layout};
use crate::common::{Gpu, adapters, gpus};

/// Format and bytes.
pub type Tensor = (Format, Vec<u8>);

pub fn f32s(values: &[f32]) -> Tensor {
    (Format::F32, crate::common::f32s(values))
}

pub fn f32_bits(bits: &[u32]) -> Tensor {
    (Format::F32, bits.iter().flat_map(|b| b.to_le_bytes()).collect())
}

pub fn f16s(values: &[f32]) -> Tensor {
    f16_bits(&values.iter().map(|&v| half::f16::from_f32(v).to_bits()).collect::<Vec<_>>())
}

pub fn f16_bits(bits: &[u16]) -> Tensor {
    (Format::F16, bits.iter().flat_map(|b| b.to_le_bytes()).collect())
}

pub fn bf16s(values: &[f32]) -> Tensor {
    bf16_bits(&values.iter().map(|&v| half::bf16::from_f32(v).to_bits()).collect::<Vec<_>>())
}

pub fn bf16_bits(bits: &[u16]) -> Tensor {
    (Format::Bf16, bits.iter().flat_map(|b| b.to_le_bytes()).collect())
}

pub fn scale(scale: f32) -> LossScale {
    LossScale::new(scale).unwrap()
}

/// A limit with the ideal rule: the answers of the reports assume eps 0.
pub fn clip(max_norm: f32) -> Option<ClipNorm> {
    Some(ClipNorm::new(max_norm).unwrap().with_eps(0.0).unwrap())
}

/// Runs `test` on every adapter, one test at a time on each: wgpu's GL backend gives up on its lock after 6
/// s, and a software driver compiles for longer.
pub fn each_gpu(test: impl FnMut(&Gpu)) {
    static TURNS: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    each(gpus(), &TURNS, test);
}

/// The same on devices that were asked for little: 4 storage buffers, 100000 bytes a binding, 256-byte
/// offsets, 20 workgroups a dimension.
pub fn each_small_gpu(test: impl FnMut(&Gpu)) {
    static TURNS: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    static GPUS: OnceLock<Vec<Gpu>> = OnceLock::new();
    let limits = |adapter: &wgpu::Adapter| wgpu::Limits {
        max_storage_buffers_per_shader_stage: 4,
        max_compute_workgroups_per_dimension: 20,
        max_storage_buffer_binding_size: 100_000,
        min_storage_buffer_offset_alignment: 256,
        ..adapter.limits()
    };
    each(GPUS.get_or_init(|| open_all(limits)), &TURNS, test);
}

/// The same on devices with no more than the limits that WebGPU guarantees: 8 storage buffers, 128 MiB,
/// 256-byte offsets.
pub fn each_default_gpu(test: impl FnMut(&Gpu)) {
    static TURNS: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    static GPUS: OnceLock<Vec<Gpu>> = OnceLock::new();
    // Textures play no part, and GL offers less of them than WebGPU asks for.
    let limits = |adapter: &wgpu::Adapter| wgpu::Limits::default().or_worse_values_from(&adapter.limits());
    each(GPUS.get_or_init(|| open_all(limits)), &TURNS, test);
}

fn open_all(limits: impl Fn(&wgpu::Adapter) -> wgpu::Limits) -> Vec<Gpu> {
    let adapters = adapters::named("all").unwrap_or_else(|e| panic!("{e}"));
    adapters.iter().map(|a| adapters::open_with(a, limits(a)).unwrap_or_else(|e| panic!("{e}"))).collect()
}

fn each(gpus: &[Gpu], turns: &[Mutex<()>], mut test: impl FnMut(&Gpu)) {
    for (i, gpu) in gpus.iter().enumerate() {
        let _turn = turns[i % turns.len()].lock().unwrap_or_else(PoisonError::into_inner);
        test(gpu);
    }
}

/// One step, ready to be compared on every adapter.
#[must_use]
pub struct Step(Input);

/// A step with scale 1 and no limit.
pub fn step(name: &str, tensors: impl Into<Vec<Tensor>>) -> Step {
    let tensors = tensors.into();
    Step(Input { name: name.into(), scale: LossScale::ONE, clip: None, tensors })
}

impl Step {
    pub fn scale(mut self, by: f32) -> Self {
        self.0.scale = scale(by);
        self
    }

    /// With eps 0.
    pub fn clip(mut self, max_norm: f32) -> Self {
        self.0.clip = clip(max_norm);
        self
    }

    pub fn eps(mut self, eps: f32) -> Self {
        self.0.clip = self.0.clip.map(|clip| clip.with_eps(eps).unwrap());
        self
    }

    /// The norm and the tensors after the step, on the reference and on every adapter in every layout.
    pub fn gives(self, norm: f64, after: impl Into<Vec<Tensor>>) -> Answer {
        let want = runner::on_reference(&self.0);
        let after: Vec<Vec<u8>> = after.into().into_iter().map(|(_, bytes)| bytes).collect();
        assert!(!want.found_inf && !want.overflow, "{}: {want:?}", self.0.name);
        assert_eq!(want.norm.to_bits(), norm.to_bits(), "{}: norm {:e}", self.0.name, want.norm);
        assert_eq!(want.tensors, after, "{}", self.0.name);
        self.everywhere(want)
    }

    /// The norm, and not a byte changed.
    pub fn keeps(self, norm: f64) -> Answer {
        let before = self.0.tensors.clone();
        self.gives(norm, before)
    }

    /// `found_inf`, not a byte changed, and these counts.
    pub fn skips(self, nonfinite: &[Nonfinite]) -> Answer {
        let want = self.untouched();
        assert_eq!((want.overflow, want.norm.to_bits()), (false, 0), "{}", self.0.name);
        assert_eq!(want.nonfinite, nonfinite, "{}", self.0.name);
        self.everywhere(want)
    }

    /// `found_inf` because a result would not fit, and not a byte changed.
    pub fn overflows(self) -> Answer {
        let want = self.untouched();
        assert!(want.overflow && want.nonfinite.iter().all(|n| n.first.is_none()), "{}", self.0.name);
        self.everywhere(want)
    }

    fn untouched(&self) -> Answer {
        let want = runner::on_reference(&self.0);
        assert!(want.found_inf, "{}: {want:?}", self.0.name);
        for (after, (_, before)) in want.tensors.iter().zip(&self.0.tensors) {
            assert_eq!(after, before, "{}", self.0.name);
        }
        want
    }

    fn everywhere(self, want: Answer) -> Answer {
        let formats: Vec<Format> = self.0.tensors.iter().map(|t| t.0).collect();
        each_gpu(|gpu| {
            for layout in Layout::ALL {
                let at = || format!("{}, {layout:?}, {}", self.0.name, adapters::label(&gpu.info));
                let got =
                    runner::on_gpu(&gpu.context, &self.0, layout).unwrap_or_else(|e| panic!("{}: {e}", at()));
                if let Some(difference) = runner::difference(&got, &want, &formats) {
                    panic!("{}: {difference}", at());
                }
            }
        });
        want
    }
}

/// Holds a value to a report's decimal: half of its last digit, and the one unit in the last place of a
/// 24-bit number that the norm may be off.
pub fn reads(value: f64, decimal: &str) {
    let want: f64 = decimal.parse().unwrap();
    let (mantissa, exponent) = decimal.split_once('e').unwrap_or((decimal, "0"));
    let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i32);
    let half_digit = 0.5 * 10f64.powi(exponent.parse::<i32>().unwrap() - places);
    let ulp = want.abs() * 2f64.powi(-23);
    // Without a point the decimal stands for the exact number.
    let room = if mantissa.contains('.') { half_digit + ulp } else { ulp };
    assert!((value - want).abs() <= room, "{value:e}, reported {decimal}");
}

/// A buffer per tensor.
pub fn upload(gpu: &Gpu, tensors: &[Tensor]) -> Vec<wgpu::Buffer> {
    tensors
        .iter()
        .map(|(_, bytes)| {
            let mut words = bytes.clone();
            words.resize(bytes.len().next_multiple_of(4).max(4), 0);
            runner::upload(&gpu.context, &words)
        })
        .collect()
}

/// The bytes of a buffer after all that was submitted.
pub fn bytes(gpu: &Gpu, buffer: &wgpu::Buffer) -> Vec<u8> {
    runner::download(&gpu.context, buffer).unwrap()
}

/// A whole buffer as one tensor.
pub fn whole(buffer: &wgpu::Buffer, format: Format) -> TensorSlice<'_> {
    TensorSlice { buffer, offset: 0, len: buffer.size() / format.size(), format }
}

/// A set of whole f32 buffers, named "0", "1", ...
pub fn f32_set(gpu: &Gpu, buffers: &[wgpu::Buffer]) -> GradSet {
    let mut builder = GradSet::builder("set");
    for (i, buffer) in buffers.iter().enumerate() {
        builder = builder.tensor(i.to_string(), whole(buffer, Format::F32));
    }
    builder.build(&gpu.context).unwrap()
}

pub fn encoder(context: &Context) -> wgpu::CommandEncoder {
    context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// Records and submits a step.
pub fn submit(gpu: &Gpu, set: &GradSet, scale: LossScale, clip: Option<ClipNorm>) {
    let mut encoder = encoder(&gpu.context);
    set.record(&mut encoder, scale, clip).unwrap();
    gpu.context.queue().submit([encoder.finish()]);
}

/// Records, submits and reads a step.
pub fn run(gpu: &Gpu, set: &GradSet, scale: LossScale, clip: Option<ClipNorm>) -> Report {
    submit(gpu, set, scale, clip);
    set.read_report().unwrap()
}

/// Pseudo-random words (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
