//! The digit sums of the largest tile fit where the kernels keep them.

mod common;

use common::runner::upload;
use gradclip::plan::{MAX_TILE_WORDS, PlanLimits};
use gradclip::reference::{TensorBits, step};
use gradclip::{Format, GradSet, LossScale, TensorSlice};

/// A full tile of elements whose first digit is as large as the format's digits get.
#[test]
fn the_largest_tile_holds_the_largest_digits() {
    for (format, word) in
        [(Format::F32, 0x477f_ffffu32), (Format::F16, 0x7bff_fbff), (Format::Bf16, 0x477f_c77f)]
    {
        let bytes = word.to_le_bytes().repeat(MAX_TILE_WORDS as usize);
        let mut on_cpu = bytes.clone();
        let mut tensors = [TensorBits::new(format, &mut on_cpu)];
        let expected = step(&mut tensors, LossScale::ONE, None).total_norm.to_f64();
        for gpu in common::gpus() {
            let gpu = &gpu.context;
            let buffer = upload(gpu, &bytes);
            let mut limits = PlanLimits::from_device(gpu.device());
            limits.tile_words = MAX_TILE_WORDS;
            let len = bytes.len() as u64 / format.size();
            let slice = TensorSlice { buffer: &buffer, offset: 0, len, format };
            let set =
                GradSet::builder("set").tensor("gradient", slice).plan_limits(limits).build(gpu).unwrap();
            assert_eq!(set.plan().tiles, 1);
            let mut encoder = gpu.device().create_command_encoder(&Default::default());
            set.record_deferred(&mut encoder, LossScale::ONE, None).unwrap();
            gpu.queue().submit([encoder.finish()]);
            assert_eq!(set.read_report().unwrap().total_norm, Some(expected), "{format}");
        }
    }
}
