//! More than 2^31 bytes of gradients: one element bad at the very end, then none.
//!
//! Beside sizes and indices this shows whether a driver ends long loops early: the norm shows a loss of a few hundred
//! elements anywhere.

mod common;

use common::adapters::label;
use common::{Gpu, gpus, runner};
use gradclip::reference::{apply, exact, norm_finish};
use gradclip::{ClipNorm, Format, GradSet, LossScale, Nonfinite, R24, Report, TensorSlice, wgpu};

/// A little over 2^31 bytes, and odd.
const ELEMENTS: u64 = (1 << 29) + (1 << 20) + 77;
/// Elements after which the values repeat.
const PERIOD: u64 = 1 << 22;
/// In front of every tensor lies a word that is not its own.
const OFFSET: u64 = 4;
/// Bytes read back at a time.
const SAMPLE: u64 = 1 << 14;

/// Small integers, so that the sum of squares is an exact integer, that change every 1000 elements.
fn value(element: u64) -> f32 {
    (1 + element % PERIOD / 1000 % 5) as f32
}

/// How many elements of each value 1, 2, 3, 4, 5 the first `len` elements have.
fn counts(len: u64) -> [u64; 5] {
    let count = |len: u64| {
        let mut counts = [0; 5];
        for element in 0..len {
            counts[value(element) as usize - 1] += 1;
        }
        counts
    };
    let (period, rest) = (count(PERIOD), count(len % PERIOD));
    std::array::from_fn(|i| len / PERIOD * period[i] + rest[i])
}

struct Tensor {
    name: String,
    buffer: wgpu::Buffer,
    len: u64,
}

/// As few tensors as hold all elements, one a buffer, the largest last; `None` if the device refuses the memory.
fn allocate(gpu: &Gpu) -> Option<Vec<Tensor>> {
    let device = gpu.context.device();
    let most = device.limits().max_buffer_size / 4 - OFFSET / 4;
    let mut lens = vec![most.min(ELEMENTS); usize::try_from(ELEMENTS / most.min(ELEMENTS)).unwrap()];
    lens.insert(0, ELEMENTS - lens.iter().sum::<u64>());
    let scopes = [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
    let scopes = scopes.map(|filter| device.push_error_scope(filter));
    let tensors = lens.iter().enumerate().filter(|(_, len)| **len > 0).map(|(i, &len)| Tensor {
        name: format!("shard.{i}"),
        buffer: device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("gradients"),
            size: OFFSET + 4 * len,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        }),
        len,
    });
    let tensors: Vec<Tensor> = tensors.collect();
    let refused: Vec<_> = scopes.into_iter().rev().filter_map(|s| pollster::block_on(s.pop())).collect();
    if !refused.is_empty() {
        eprintln!("{}: cannot hold {ELEMENTS} elements: {refused:?}", label(&gpu.info));
        return None;
    }
    Some(tensors)
}

/// Copies one period over all tensors, on the GPU.
fn fill(gpu: &Gpu, tensors: &[Tensor]) {
    let period: Vec<f32> = (0..PERIOD).map(value).collect();
    let period = runner::upload(&gpu.context, bytemuck::cast_slice(&period));
    let mut encoder = gpu.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for tensor in tensors {
        for first in (0..tensor.len).step_by(PERIOD as usize) {
            let bytes = 4 * PERIOD.min(tensor.len - first);
            encoder.copy_buffer_to_buffer(&period, 0, &tensor.buffer, OFFSET + 4 * first, bytes);
        }
    }
    gpu.context.queue().submit([encoder.finish()]);
}

/// Compares samples of a tensor with `want`, a function of the element: both ends, the middle, and both sides of every
/// multiple of 2^27 bytes, where bindings of 128 MiB are cut. The word in front still has to be 0.
fn check_samples(gpu: &Gpu, tensor: &Tensor, want: impl Fn(u64) -> u32) {
    let device = gpu.context.device();
    let bytes = tensor.buffer.size();
    let cuts = (1 << 27..bytes).step_by(1 << 27);
    let starts = cuts.map(|cut| cut - SAMPLE / 2).chain([0, bytes / 8 * 4]);
    let last = bytes.saturating_sub(SAMPLE);
    let starts: Vec<u64> = starts.chain([last]).map(|start| start.min(last)).collect();
    let sample = SAMPLE.min(bytes);
    let samples = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("samples"),
        size: sample * starts.len() as u64,
        usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for (i, &start) in (0..).zip(&starts) {
        encoder.copy_buffer_to_buffer(&tensor.buffer, start, &samples, i * sample, sample);
    }
    gpu.context.queue().submit([encoder.finish()]);
    let found: Vec<u32> = bytemuck::pod_collect_to_vec(&runner::download(&gpu.context, &samples).unwrap());
    let words = starts.iter().flat_map(|start| start / 4..(start + sample) / 4);
    for (word, found) in words.zip(found) {
        let want = word.checked_sub(OFFSET / 4).map_or(0, &want);
        assert_eq!(found, want, "{}: word {word} of {}", label(&gpu.info), tensor.name);
    }
}

fn step(set: &GradSet, gpu: &Gpu, scale: LossScale, clip: Option<ClipNorm>) -> Report {
    let mut encoder = gpu.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    set.record(&mut encoder, scale, clip).unwrap();
    gpu.context.queue().submit([encoder.finish()]);
    set.read_report().unwrap()
}

/// The norm of `count` elements of each of five values, by exact addition of their squares.
fn norm(counts: [u64; 5], values: [R24; 5]) -> R24 {
    let lowest = values.map(|v| 2 * v.exponent).into_iter().min().unwrap();
    let squares = counts.iter().zip(values).map(|(&count, v)| {
        let square = exact::mul(v, v);
        (u128::from(count) * u128::from(square.significand)) << (square.exponent - lowest)
    });
    exact::sqrt(squares.sum(), lowest)
}

fn run(gpu: &Gpu, tensors: &[Tensor]) {
    let who = label(&gpu.info);
    let mut builder = GradSet::builder("large");
    for Tensor { name, buffer, len } in tensors {
        let slice = TensorSlice { buffer, offset: OFFSET, len: *len, format: Format::F32 };
        builder = builder.tensor(name, slice);
    }
    let set = builder.build(&gpu.context).unwrap();
    assert!(4 * set.elements() > 1 << 31);
    fill(gpu, tensors);

    let last = tensors.last().unwrap();
    let end = OFFSET + 4 * (last.len - 1);
    let nan = 0x7fc0_1234u32;
    gpu.context.queue().write_buffer(&last.buffer, end, &nan.to_le_bytes());
    let (scale, clip) = (LossScale::new(4.0).unwrap(), ClipNorm::new(1.0).unwrap());
    let report = step(&set, gpu, scale, Some(clip));
    assert!(report.found_inf && !report.overflow, "{who}: {report}");
    let bad: Vec<_> = report.bad_tensors().map(|bad| (bad.name.as_str(), bad.nonfinite)).collect();
    let expected = Nonfinite { nan: 1, first: Some(last.len - 1), ..Nonfinite::default() };
    assert_eq!(bad, [(last.name.as_str(), expected)], "{who}");
    for tensor in tensors {
        let bad = (tensor.name == last.name).then_some(last.len - 1);
        check_samples(gpu, tensor, |i| if bad == Some(i) { nan } else { value(i).to_bits() });
    }

    gpu.context.queue().write_buffer(&last.buffer, end, &value(last.len - 1).to_le_bytes());
    let mut all = [0; 5];
    for tensor in tensors {
        all = std::array::from_fn(|i| all[i] + counts(tensor.len)[i]);
    }
    assert_eq!(all.iter().sum::<u64>(), ELEMENTS);
    let sum: u64 = (1..).zip(all).map(|(value, count)| value * value * count).sum();
    let report = step(&set, gpu, scale, Some(clip));
    // An f64 square root rounded to f32 is the right f32: 53 bits are more than twice 24 and two.
    let total_norm = (sum as f64).sqrt() as f32 / 4.0;
    assert_eq!(report.total_norm, Some(f64::from(total_norm)), "{who}");
    assert_eq!(report.run, 2);
    let norm_r24 = R24::from_f32(total_norm).unwrap();
    let factor = norm_finish::factor(
        norm_finish::coefficient(norm_r24, clip.max_norm(), clip.eps()),
        norm_finish::inverse(scale.get(), 1.0).unwrap(),
    );
    assert_eq!(report.factor, Some(factor.to_f64()), "{who}");
    let clipped =
        [1f32, 2.0, 3.0, 4.0, 5.0].map(|v| apply::encode(Format::F32, v.to_bits(), factor).unwrap());
    for tensor in tensors {
        check_samples(gpu, tensor, |i| clipped[value(i) as usize - 1]);
    }

    let report = step(&set, gpu, LossScale::ONE, None);
    let after = norm(all, clipped.map(|bits| R24::from_f32(f32::from_bits(bits)).unwrap()));
    assert_eq!(report.total_norm, Some(after.to_f64()), "{who}");
    assert!(report.total_norm <= Some(1.0 + 2f64.powi(-22)), "{who}: {report}");
}

#[test]
fn beyond_two_gib() {
    let mut ran = 0;
    for gpu in gpus() {
        // GL comes last and reaches the same devices as the backends before it; on a CPU one run takes seconds.
        if ran > 0 && gpu.info.backend == wgpu::Backend::Gl {
            continue;
        }
        if let Some(tensors) = allocate(gpu) {
            run(gpu, &tensors);
            ran += 1;
            // The next adapter may share the memory.
            tensors.iter().for_each(|tensor| tensor.buffer.destroy());
            gpu.context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        }
    }
    assert!(ran > 0, "no adapter holds {} bytes", 4 * ELEMENTS);
}
