//! Kind L: binding limits, alignment, neighbours in one buffer.

use gradclip::plan::OWN_STORAGE_BUFFERS;
use gradclip::{Format, GradSet, LossScale, TensorSlice};

use crate::common::{Gpu, adapters, runner};
use crate::support::{
    Tensor, bytes, clip, each_default_gpu, each_gpu, each_small_gpu, f16_bits, f32_bits, f32_set, f32s, run,
    step, upload,
};

/// 0.2 rounded to 24 bits times 1 to 4.
const CLIPPED: [u32; 4] = [0x3e4c_cccd, 0x3ecc_cccd, 0x3f19_999a, 0x3f4c_cccd];

/// A set of tensors at byte offsets of one buffer, which holds them and `gap` everywhere else.
struct Arena {
    buffer: gradclip::wgpu::Buffer,
    places: Vec<(usize, usize)>,
    set: GradSet,
    gap: u32,
}

impl Arena {
    fn new(gpu: &Gpu, words: usize, gap: u32, tensors: &[(usize, Tensor)]) -> Self {
        let mut image = f32_bits(&vec![gap; words]).1;
        for (offset, (_, bytes)) in tensors {
            image[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        let buffer = runner::upload(&gpu.context, &image);
        let mut builder = GradSet::builder("arena");
        for (i, (offset, (format, bytes))) in tensors.iter().enumerate() {
            let (offset, len) = (*offset as u64, bytes.len() as u64 / format.size());
            builder =
                builder.tensor(i.to_string(), TensorSlice { buffer: &buffer, offset, len, format: *format });
        }
        let set = builder.build(&gpu.context).unwrap();
        let places = tensors.iter().map(|(offset, (_, bytes))| (*offset, bytes.len())).collect();
        Self { buffer, places, set, gap }
    }

    /// Whether the tensors hold these bytes and all else is as it was.
    fn assert_holds(&self, gpu: &Gpu, tensors: &[Tensor]) {
        let mut want = f32_bits(&vec![self.gap; self.buffer.size() as usize / 4]).1;
        for (&(offset, len), (_, bytes)) in self.places.iter().zip(tensors) {
            want[offset..offset + len].copy_from_slice(bytes);
        }
        assert_eq!(bytes(gpu, &self.buffer), want, "{}", adapters::label(&gpu.info));
    }
}

/// A hundred buffers on a device with few storage slots: one slot stays free, because Metal takes it for
/// itself.
fn hundred_buffers(gpu: &Gpu, slots: u32) {
    assert_eq!(gpu.context.device().limits().max_storage_buffers_per_shader_stage, slots);
    let buffers = upload(gpu, &vec![f32s(&[1.0]); 100]);
    let set = f32_set(gpu, &buffers);
    for dispatch in &set.plan().dispatches {
        assert!(dispatch.windows.len() as u32 + OWN_STORAGE_BUFFERS < slots);
    }
    let report = run(gpu, &set, LossScale::ONE, clip(5.0));
    assert_eq!(report.total_norm, Some(10.0), "{}", adapters::label(&gpu.info));
    for buffer in &buffers {
        assert_eq!(bytes(gpu, buffer), f32s(&[0.5]).1, "{}", adapters::label(&gpu.info));
    }
}

#[test]
fn l01_one_storage_slot_stays_free() {
    each_default_gpu(|gpu| hundred_buffers(gpu, 8));
    each_small_gpu(|gpu| hundred_buffers(gpu, 4));
    step("L01", vec![f32s(&[1.0]); 100]).clip(5.0).gives(10.0, vec![f32s(&[0.5]); 100]);
}

/// The adapter may offer finer offsets than the device was given; wgpu would refuse a binding at one.
#[test]
fn l03_offsets_keep_to_the_device_and_not_the_adapter() {
    each_default_gpu(|gpu| {
        let (three, four) = (f32s(&[3.0]), f32s(&[4.0]));
        for offsets in [[0, 256], [32, 288], [252, 508]] {
            let [first, second] = offsets;
            let arena = Arena::new(gpu, 256, 0xffff_ffff, &[(first, three.clone()), (second, four.clone())]);
            assert_eq!(gpu.context.device().limits().min_storage_buffer_offset_alignment, 256);
            assert!(arena.set.plan().windows.iter().all(|w| w.offset % 256 == 0));
            assert_eq!(run(gpu, &arena.set, LossScale::ONE, clip(1.0)).total_norm, Some(5.0));
            arena.assert_holds(gpu, &[f32_bits(&[CLIPPED[2]]), f32_bits(&[CLIPPED[3]])]);
        }
    });
}

#[test]
fn l04_any_offset_of_4_bytes() {
    each_gpu(|gpu| {
        let tensors = [(0, f32s(&[1.0, 2.0, 2.0])), (12, f32s(&[0.0, 0.0, 0.0, 0.0, 4.0]))];
        let arena = Arena::new(gpu, 10, 0x7fc0_0000, &tensors);
        assert_eq!(run(gpu, &arena.set, LossScale::ONE, clip(1.0)).total_norm, Some(5.0));
        let [one, two, _, four] = CLIPPED;
        arena.assert_holds(gpu, &[f32_bits(&[one, two, two]), f32_bits(&[0, 0, 0, 0, four])]);
    });
}

#[test]
fn l06_the_other_half_of_an_odd_last_word() {
    each_gpu(|gpu| {
        // Gaps of 0x7e00 7e00: the second half of the last word is a NaN.
        let arena = Arena::new(gpu, 2, 0x7e00_7e00, &[(0, f16_bits(&[0x3c00, 0x4000, 0x4000]))]);
        assert_eq!(&bytes(gpu, &arena.buffer)[6..], [0x00, 0x7e]);
        let report = run(gpu, &arena.set, LossScale::ONE, clip(1.0));
        assert_eq!(
            (report.found_inf, report.total_norm),
            (false, Some(3.0)),
            "{}",
            adapters::label(&gpu.info)
        );
        arena.assert_holds(gpu, &[f16_bits(&[0x3555, 0x3955, 0x3955])]);
    });
    step("L06", [f16_bits(&[0x3c00, 0x4000, 0x4000])])
        .clip(1.0)
        .gives(3.0, [f16_bits(&[0x3555, 0x3955, 0x3955])]);
}

#[test]
fn l07_two_ranges_of_one_buffer() {
    each_gpu(|gpu| {
        let arena = Arena::new(gpu, 65, 0, &[(0, f32s(&[3.0])), (256, f32s(&[4.0]))]);
        assert_eq!(run(gpu, &arena.set, LossScale::ONE, clip(1.0)).total_norm, Some(5.0));
        arena.assert_holds(gpu, &[f32_bits(&[CLIPPED[2]]), f32_bits(&[CLIPPED[3]])]);
    });
}

#[test]
fn l09_gaps_are_neither_read_nor_written() {
    for format in Format::ALL {
        let (three, four, clipped) = match format {
            Format::F32 => (f32s(&[3.0]), f32s(&[4.0]), [f32s(&[0.6]), f32s(&[0.8])]),
            Format::F16 => {
                (f16_bits(&[0x4200]), f16_bits(&[0x4400]), [f16_bits(&[0x38cd]), f16_bits(&[0x3a66])])
            }
            Format::Bf16 => continue,
        };
        each_gpu(|gpu| {
            let arena = Arena::new(gpu, 65, 0x7fc0_7fc0, &[(0, three.clone()), (256, four.clone())]);
            let report = run(gpu, &arena.set, LossScale::ONE, clip(1.0));
            assert_eq!(
                (report.found_inf, report.total_norm),
                (false, Some(5.0)),
                "{}",
                adapters::label(&gpu.info)
            );
            arena.assert_holds(gpu, &clipped);
        });
    }
}
