//! More than an engine would do: very many tensors, nothing but NaN.

use gradclip::{Format, GradSet, LossScale, Nonfinite, TensorSlice};

use crate::support::{adapters, build, bytes, clip, each_gpu, encoder, f32s, limit, runner, upload, whole};

/// Ten thousand tensors of one element in one buffer, all formats, a NaN in every gap; then the last of them
/// bad.
#[test]
fn ten_thousand_tiny_tensors() {
    const TENSORS: usize = 10_000;
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let formats = |i: usize| Format::ALL[i % 3];
        let image = |one: [u32; 3]| -> Vec<u8> {
            // Three words a tensor: gap, element, gap. Of a 16-bit element's word the upper half is a gap
            // too.
            let words = (0..TENSORS).flat_map(|i| {
                let gap = if formats(i) == Format::F32 { 0 } else { 0xffff_0000 };
                [u32::MAX, one[i % 3] | gap, u32::MAX]
            });
            words.flat_map(u32::to_le_bytes).collect()
        };
        let ones = image([0x3f80_0000, 0x3c00, 0x3f80]);
        let arena = runner::upload(&gpu.context, &ones);
        let mut builder = GradSet::builder("adamw");
        for i in 0..TENSORS {
            let slice = TensorSlice { buffer: &arena, offset: 12 * i as u64 + 4, len: 1, format: formats(i) };
            builder = builder.tensor(i.to_string(), slice);
        }
        let set = builder.build(&gpu.context).unwrap();
        assert_eq!(clip(gpu, &set, 50.0).total_norm, Some(100.0), "{at}");
        let halves = image([0x3f00_0000, 0x3800, 0x3f00]);
        assert!(bytes(gpu, &arena) == halves, "{at}");

        // The last tensor is an f32.
        let infinite = 0x7f80_0000_u32.to_le_bytes();
        gpu.context.queue().write_buffer(&arena, 12 * (TENSORS as u64 - 1) + 4, &infinite);
        let report = clip(gpu, &set, 1.0);
        let bad: Vec<_> = report.bad_tensors().map(|bad| (bad.name.to_string(), bad.nonfinite)).collect();
        let inf = Nonfinite { pos_inf: 1, first: Some(0), ..Nonfinite::default() };
        assert_eq!(bad, [((TENSORS - 1).to_string(), inf)], "{at}");
        let mut want = halves;
        let place = want.len() - 8;
        want[place..place + 4].copy_from_slice(&infinite);
        assert!(bytes(gpu, &arena) == want, "{at}");
    });
}

#[test]
fn a_thousand_buffers() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let buffers: Vec<_> = (0..1024).map(|_| upload(gpu, &[1.0])).collect();
        let names: Vec<String> = (0..1024).map(|i| i.to_string()).collect();
        let tensors: Vec<_> = names.iter().map(String::as_str).zip(buffers.iter().map(whole)).collect();
        let set = build(gpu, &tensors).unwrap();
        assert_eq!(clip(gpu, &set, 16.0).total_norm, Some(32.0), "{at}");
        for buffer in &buffers {
            assert_eq!(bytes(gpu, buffer), f32s(&[0.5]), "{at}");
        }
    });
}

/// Exact counts, and payloads as they were.
#[test]
fn nothing_but_nan() {
    const LEN: u32 = 100_000;
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        // Payloads of every kind, either sign, quiet and signalling; never 0, which would be infinity.
        let image = |format: Format| -> Vec<u8> {
            let nan = |i: u32| match format {
                Format::F32 => 0x7f80_0000 | (i << 31) | (i.wrapping_mul(2_654_435_761) & 0x007f_ffff).max(1),
                Format::F16 => 0x7c00 | ((i & 1) << 15) | (i % 1023 + 1),
                Format::Bf16 => 0x7f80 | ((i & 1) << 15) | (i % 127 + 1),
            };
            (0..LEN).flat_map(|i| nan(i).to_le_bytes()[..format.size() as usize].to_vec()).collect()
        };
        let images = Format::ALL.map(image);
        let buffers: Vec<_> = images.iter().map(|image| runner::upload(&gpu.context, image)).collect();
        let mut builder = GradSet::builder("adamw");
        for (format, buffer) in Format::ALL.into_iter().zip(&buffers) {
            builder =
                builder.tensor(format.name(), TensorSlice { buffer, offset: 0, len: LEN.into(), format });
        }
        let set = builder.build(&gpu.context).unwrap();
        // Unscaling would write, and so would a limit of 0.
        for (scale, max_norm) in [(2.0, f32::INFINITY), (1.0, 0.0)] {
            let mut encoder = encoder(gpu);
            set.record(&mut encoder, LossScale::new(scale).unwrap(), limit(max_norm)).unwrap();
            gpu.context.queue().submit([encoder.finish()]);
            let report = set.read_report().unwrap();
            let all = Nonfinite { nan: LEN.into(), first: Some(0), ..Nonfinite::default() };
            let found = Format::ALL.map(|format| report.nonfinite_in(format.name()));
            assert_eq!((found, report.nonfinite.len()), ([all; 3], 3), "{at}");
            assert!(report.found_inf && !report.overflow, "{at}");
        }
        for (buffer, image) in buffers.iter().zip(&images) {
            assert!(bytes(gpu, buffer) == *image, "{at}");
        }
    });
}
