//! Kind C: precision of the sum, and whether two runs agree.

use gradclip::Format;

use crate::common::cases::Input;
use crate::common::{adapters, runner};
use crate::support::{
    Random, bf16_bits, bytes, clip, each_gpu, f32_set, f32s, reads, run, scale, step, upload, whole,
};

#[test]
fn c01_bf16_ones_do_not_stop_at_256() {
    let answer = step("C01", [bf16_bits(&[0x3f80; 5120])])
        .clip(f32::INFINITY)
        .keeps(f32::from_bits(0x428f_1bbd).into());
    reads(answer.norm, "71.554175");
}

#[test]
fn c03_small_squares_beside_a_large_one() {
    let mut values = vec![1.0; 1001];
    values[0] = 4096.0;
    let answer = step("C03", [f32s(&values)]).keeps(f32::from_bits(0x4580_00fa).into());
    reads(answer.norm, "4096.12207");
}

/// A thousand tensors and one tensor with the same values: in the report they differed in the fourth digit.
#[test]
fn c04_the_cut_into_tensors_changes_nothing() {
    let norm = f64::from(f32::from_bits(0x4232_e2ac));
    step("C04, one tensor", [bf16_bits(&[0x3f80; 2000])]).clip(1.0).gives(norm, [bf16_bits(&[0x3cb7; 2000])]);
    let before = vec![bf16_bits(&[0x3f80; 2]); 1000];
    each_gpu(|gpu| {
        let buffers = upload(gpu, &before);
        let mut builder = gradclip::GradSet::builder("set");
        for (i, buffer) in buffers.iter().enumerate() {
            builder = builder.tensor(i.to_string(), whole(buffer, Format::Bf16));
        }
        let set = builder.build(&gpu.context).unwrap();
        let report = run(gpu, &set, scale(1.0), clip(1.0));
        assert_eq!(report.total_norm, Some(norm), "{}", adapters::label(&gpu.info));
        for buffer in &buffers {
            assert_eq!(bytes(gpu, buffer), bf16_bits(&[0x3cb7; 2]).1, "{}", adapters::label(&gpu.info));
        }
    });
    reads(norm, "44.72136");
}

/// The same values in 37 uneven buffers. The report has a hundred runs; here each of ten is held to the
/// reference.
#[test]
fn c05_every_run_gives_the_same_bits() {
    let mut random = Random(5);
    let mut left = 1_000_000;
    let mut tensors = Vec::new();
    for i in 0..37 {
        let len = if i == 36 { left } else { (random.next() as usize % (2 * left / (37 - i))).max(1) };
        left -= len;
        // Forty binades, so that any change of order in a float sum would show.
        let value = |_| {
            let bits = random.next();
            f32::from_bits((bits as u32 & 0x807f_ffff) | (107 + (bits >> 32) as u32 % 40) << 23)
        };
        tensors.push(f32s(&(0..len).map(value).collect::<Vec<f32>>()));
    }
    assert_eq!(tensors.iter().map(|t| t.1.len()).sum::<usize>(), 4_000_000);
    let input = Input { name: "C05".into(), scale: scale(3.0), clip: clip(1.0), tensors };
    let want = runner::on_reference(&input);
    each_gpu(|gpu| {
        let buffers = upload(gpu, &input.tensors);
        let set = f32_set(gpu, &buffers);
        for i in 0..10 {
            for (buffer, (_, bytes)) in buffers.iter().zip(&input.tensors) {
                gpu.context.queue().write_buffer(buffer, 0, bytes);
            }
            let report = run(gpu, &set, input.scale, input.clip);
            let at = format!("run {i}, {}", adapters::label(&gpu.info));
            assert_eq!(report.total_norm.unwrap().to_bits(), want.norm.to_bits(), "{at}");
            for (buffer, want) in buffers.iter().zip(&want.tensors) {
                assert!(bytes(gpu, buffer) == *want, "{at}");
            }
        }
    });
}
