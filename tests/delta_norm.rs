//! `DeltaNorm` against the CPU: each difference is one f32 subtraction of the widened elements, subnormals kept, and
//! the norm of the differences is the reference's, on every bit.

mod common;
#[path = "delta_norm/page.rs"]
mod page;

use common::runner::{download, upload};
use common::{adapters, f32s, gpus};
use gradclip::reference::{TensorBits, step};
use gradclip::{DeltaNorm, Error, Format, LossScale, TensorSlice, wgpu};
use page::{Page, check, expected, finite, measure, of_one, random, widen};

/// One element at a time, so that no rounding hides behind a larger one.
#[test]
fn every_difference_is_one_rounding() {
    let bits = f32::from_bits;
    let mut pairs: Vec<(f32, f32)> = vec![(0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (1.0, 1.0), (1.0, -1.0)];
    // Subnormals on one side and on both, the border to the normals, and results on either side of it.
    let small = [
        bits(1),
        bits(2),
        bits(0x40_0000),
        bits(0x7f_ffff),
        bits(0x80_0000),
        bits(0x80_0001),
        bits(0x100_0000),
    ];
    for a in small {
        pairs.extend(small.iter().flat_map(|&b| [(a, b), (a, -b), (-a, b)]));
        pairs.extend([(a, 0.0), (-0.0, -a), (1.0, a)]);
    }
    // Where the kernel changes from integers to the float unit.
    let border = 2f32.powi(-100);
    let below = bits(border.to_bits() - 1);
    for a in [border, below] {
        pairs.extend(
            [border, -border, below, -below, bits(1), -bits(0x7f_ffff), border * 0.75, border * 1e-7]
                .map(|b| (a, b)),
        );
    }
    // Ties and what is just beside them, in integers and in the float unit.
    for scale in [1.0, 2f32.powi(-110), 2f32.powi(-120)] {
        let ulp = f32::EPSILON * scale;
        for rest in [0.5, 0.500_000_1, 0.499_999_97, 0.25, 0.75] {
            for b in [ulp * rest, -ulp * rest] {
                pairs.extend([(scale, b), (scale * 1.5, b), (bits(scale.to_bits() + 1), b), (-scale, b)]);
            }
        }
    }
    pairs.extend([(f32::MAX, bits(f32::MAX.to_bits() - 1)), (f32::MAX, 1.0), (f32::MAX, f32::MAX)]);
    // Cancellation, and numbers far apart, over the range where integers do the work.
    let mut random = random(7);
    for _ in 0..60 {
        let a = bits(random() & 0x0dff_ffff);
        pairs.push((a, bits(a.to_bits().wrapping_add(random() % 9))));
        pairs.push((a, bits(random() & 0x8dff_ffff)));
    }
    for gpu in gpus() {
        let gpu = &gpu.context;
        let page = Page::new(gpu, Format::F32, 1, 4);
        let delta = of_one(gpu, &page);
        for &(a, b) in &pairs {
            let report = measure(gpu, &delta, &page, &f32s(&[b]), &f32s(&[a]));
            let want = f64::from((a - b).abs());
            assert_eq!(
                report.total_norm,
                Some(want),
                "{a:e} ({:08x}) - {b:e} ({:08x})",
                a.to_bits(),
                b.to_bits()
            );
            assert!(!report.found_inf);
        }
    }
}

#[test]
fn all_formats_odd_lengths_odd_places() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        for (i, format) in Format::ALL.into_iter().enumerate() {
            for (j, (len, offset)) in
                [(1, 0), (2, 4), (3, 12), (255, 0), (256, 260), (257, 252), (1001, 1020)]
                    .into_iter()
                    .enumerate()
            {
                let page = Page::new(gpu, format, len, offset);
                let seed = (10 * i + j) as u32;
                let (before, after) = (finite(format, seed, len), finite(format, seed + 1000, len));
                check(gpu, &of_one(gpu, &page), &page, &before, &after);
                // The parameters, and the NaN around them, are only read.
                let mut image = download(gpu, &page.buffer).unwrap();
                image
                    .drain(offset..offset + after.len())
                    .zip(&after)
                    .for_each(|(got, &want)| assert_eq!(got, want));
                assert!(image.iter().all(|&byte| byte == 0xff));
            }
        }
    }
}

/// Every finite value of the 16-bit formats, each with a neighbour that the list gives it.
#[test]
fn every_16_bit_value() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        for (format, infinity) in [(Format::F16, 0x7c00u16), (Format::Bf16, 0x7f80)] {
            let all: Vec<u16> = (0..=u16::MAX).filter(|bits| bits & 0x7fff < infinity).collect();
            let page = Page::new(gpu, format, all.len(), 4);
            let delta = of_one(gpu, &page);
            // Near neighbours for cancellation, and others, of like magnitude so that all of them matter.
            for (top, shift) in [(infinity / 2, 1), (infinity / 4, 5), (infinity / 16, 1), (0x7f, 3)] {
                let below: Vec<u16> = all.iter().map(|bits| (bits & 0x8000) | (bits % top)).collect();
                let mut other = below.clone();
                other.rotate_left(shift);
                let bytes = |v: &[u16]| v.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<u8>>();
                check(gpu, &delta, &page, &bytes(&other), &bytes(&below));
            }
        }
    }
}

#[test]
fn all_subnormal_parameters() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let mut random = random(3);
        let mut subnormals =
            || -> Vec<f32> { (0..501).map(|_| f32::from_bits(random() & 0x807f_ffff)).collect() };
        let (before, after) = (subnormals(), subnormals());
        let page = Page::new(gpu, Format::F32, before.len(), 8);
        let delta = of_one(gpu, &page);
        check(gpu, &delta, &page, &f32s(&before), &f32s(&after));
        check(gpu, &delta, &page, &f32s(&vec![0.0; 501]), &f32s(&after));
        check(gpu, &delta, &page, &f32s(&before), &f32s(&vec![-0.0; 501]));
        // Nothing moved.
        let report = measure(gpu, &delta, &page, &f32s(&before), &f32s(&before));
        assert_eq!((report.total_norm, report.found_inf), (Some(0.0), false));
    }
}

#[test]
fn huge_parameters() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let page = Page::new(gpu, Format::F32, 3, 4);
        let delta = of_one(gpu, &page);
        let max = f32::MAX;
        // The differences fit, their norm does not fit f32.
        let report = measure(gpu, &delta, &page, &f32s(&[0.0, 0.0, 1.0]), &f32s(&[max, -max, 1.0]));
        assert!(!report.found_inf && report.total_norm > Some(4e38));
        check(gpu, &delta, &page, &f32s(&[0.0, 0.0, 1.0]), &f32s(&[max, -max, 1.0]));
        check(gpu, &delta, &page, &f32s(&[max / 2.0, 3e38, 0.0]), &f32s(&[-max / 2.0, 2e38, 1e-40]));
        // A difference that does not.
        let report = measure(gpu, &delta, &page, &f32s(&[-max, 0.0, 0.0]), &f32s(&[max, 0.0, 0.0]));
        assert!(report.found_inf && report.total_norm.is_none());
    }
}

#[test]
fn nonfinite_before_or_after_is_found() {
    let one = |format, value: f32| match format {
        Format::F32 => value.to_le_bytes().to_vec(),
        Format::F16 => half::f16::from_f32(value).to_le_bytes().to_vec(),
        Format::Bf16 => half::bf16::from_f32(value).to_le_bytes().to_vec(),
    };
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for gpu in gpus() {
        let gpu = &gpu.context;
        for format in Format::ALL {
            let page = Page::new(gpu, format, 5, 4);
            let delta = of_one(gpu, &page);
            let bytes = |third: f32| [1.0, 2.0, third, -0.5, 3.0].map(|v| one(format, v)).concat();
            for (before, after) in [
                (inf, 0.0),
                (0.0, -inf),
                (nan, 0.0),
                (0.0, nan),
                (inf, inf),
                (-inf, inf),
                (nan, nan),
                (nan, inf),
            ] {
                let report = measure(gpu, &delta, &page, &bytes(before), &bytes(after));
                assert!(report.found_inf && !report.overflow && report.skipped, "{format} {before} {after}");
                assert_eq!(report.total_norm, None);
                let bad: Vec<_> = report.bad_tensors().collect();
                assert!(bad.len() == 1 && bad[0].name.starts_with("weight"), "{bad:?}");
                assert_eq!(bad[0].nonfinite.first, Some(2));
            }
            // And it is not remembered.
            let report = measure(gpu, &delta, &page, &bytes(1.0), &bytes(0.5));
            assert_eq!((report.found_inf, report.total_norm), (false, Some(0.5)));
        }
    }
}

/// One norm over all of a model, its empty tensors included.
#[test]
fn several_parameters_of_several_formats() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let shapes =
            [(Format::F32, 300, 4), (Format::F16, 301, 0), (Format::F32, 0, 8), (Format::Bf16, 7, 508)];
        let pages = shapes.map(|(format, len, offset)| Page::new(gpu, format, len, offset));
        let names = ["wte.weight", "wpe.weight", "unused", "ln.bias"].map(String::from);
        let delta =
            DeltaNorm::new(gpu, "moved", names.into_iter().zip(pages.iter().map(Page::slice))).unwrap();
        let values = |seed: u32| -> Vec<f32> {
            let mut random = random(seed);
            (0..301).map(|_| (random() >> 8) as f32 / 1e7 - 0.8).collect()
        };
        let narrow = |format: Format, values: &[f32]| -> Vec<u8> {
            match format {
                Format::F32 => f32s(values),
                Format::F16 => values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect(),
                Format::Bf16 => values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect(),
            }
        };
        let mut differences = Vec::new();
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        // All in one encoder: what the parameters become is copied in between.
        let mut moved = Vec::new();
        for (i, page) in pages.iter().enumerate() {
            let before = narrow(page.format, &values(i as u32)[..page.len]);
            let after = narrow(page.format, &values(50 + i as u32)[..page.len]);
            page.put(gpu, &before);
            let size = page.format.size() as usize;
            let pairs = before.chunks_exact(size).zip(after.chunks_exact(size));
            differences.extend(pairs.map(|(b, a)| widen(page.format, a) - widen(page.format, b)));
            let mut padded = after;
            padded.resize(padded.len().next_multiple_of(4), 0xff);
            moved.push(padded);
        }
        delta.record_before(&mut encoder);
        for (page, bytes) in pages.iter().zip(&moved).filter(|(_, bytes)| !bytes.is_empty()) {
            let source = upload(gpu, bytes);
            encoder.copy_buffer_to_buffer(&source, 0, &page.buffer, page.offset as u64, bytes.len() as u64);
        }
        delta.record_after(&mut encoder).unwrap();
        gpu.queue().submit([encoder.finish()]);
        let mut bytes = f32s(&differences);
        let want = step(&mut [TensorBits::new(Format::F32, &mut bytes)], LossScale::ONE, None);
        assert_eq!(delta.read_report().unwrap().total_norm, Some(want.total_norm.to_f64()));
    }
}

#[test]
fn it_can_be_used_again_and_again() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        for format in Format::ALL {
            let page = Page::new(gpu, format, 99, 4);
            let delta = of_one(gpu, &page);
            let mut last = finite(format, 0, 99);
            for seed in 1..4 {
                let next = finite(format, seed, 99);
                check(gpu, &delta, &page, &last, &next);
                last = next;
            }
            assert!(matches!(delta.read_report(), Ok(report) if report.run == 3));
        }
    }
}

#[test]
fn nothing_to_measure() {
    let gpu = &gpus()[0].context;
    let empty = Page::new(gpu, Format::F16, 0, 4);
    for parameters in [vec![], vec![("unused".to_string(), empty.slice())]] {
        let delta = DeltaNorm::new(gpu, "moved", parameters).unwrap();
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        delta.record_before(&mut encoder);
        delta.record_after(&mut encoder).unwrap();
        gpu.queue().submit([encoder.finish()]);
        let report = delta.read_report().unwrap();
        assert_eq!((report.total_norm, report.found_inf), (Some(0.0), false));
    }
}

/// More than the 2^24 elements of a piece, and than 65535 workgroups of 256 cover in one dimension.
#[test]
fn d05_more_elements_than_a_piece_holds() {
    const LEN: usize = (1 << 24) + 259;
    let mut random = random(5);
    // The last element moves far enough to count beside all others together.
    let before: Vec<u8> =
        (0..LEN).flat_map(|_| half::bf16::from_f32((random() >> 16) as f32).to_le_bytes()).collect();
    let mut after = before.clone();
    after.rotate_left(2);
    after[2 * LEN - 2..].copy_from_slice(&half::bf16::from_f32(3e7).to_le_bytes());
    for gpu in gpus() {
        let gpu = &gpu.context;
        let page = Page::new(gpu, Format::Bf16, LEN, 4);
        check(gpu, &of_one(gpu, &page), &page, &before, &after);
    }
}

/// A small limit of workgroups makes a second dimension out of few elements.
#[test]
fn l02_a_second_dimension_of_workgroups() {
    for adapter in adapters::named("all").unwrap() {
        let limits = wgpu::Limits { max_compute_workgroups_per_dimension: 3, ..adapter.limits() };
        let gpu = &adapters::open_with(&adapter, limits).unwrap().context;
        // Four workgroups of 256 and a rest: a grid of 3 x 2.
        let page = Page::new(gpu, Format::F32, 1025, 4);
        let (before, after) = (finite(Format::F32, 1, 1025), finite(Format::F32, 2, 1025));
        check(gpu, &of_one(gpu, &page), &page, &before, &after);
    }
}

#[test]
fn misuse_names_the_parameter() {
    let gpu = &gpus()[0].context;
    let page = Page::new(gpu, Format::F32, 4, 0);
    let error = |slice: TensorSlice<'_>| {
        DeltaNorm::new(gpu, "moved", [("ln.weight".to_string(), slice)]).map(drop).unwrap_err()
    };
    let at = |offset, len| TensorSlice { offset, len, ..page.slice() };
    assert!(matches!(error(at(2, 1)), Error::Offset { tensor, offset: 2 } if tensor == "ln.weight"));
    assert!(matches!(error(at(8, 100)), Error::BeyondBuffer { tensor, .. } if tensor == "ln.weight"));
    let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 16,
        usage: wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let slice = TensorSlice { buffer: &buffer, ..page.slice() };
    assert!(matches!(error(slice), Error::MissingUsage { tensor } if tensor == "ln.weight"));
    let twice = ["ln.weight", "ln.weight"].map(|name| (name.to_string(), page.slice()));
    let error = DeltaNorm::new(gpu, "moved", twice).map(drop).unwrap_err();
    assert!(error.to_string().contains("ln.weight"), "{error}");
}

#[test]
fn misuse_is_refused_by_name() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let page = Page::new(gpu, Format::F32, 4, 0);
        let named = |name: &str| (name.to_owned(), page.slice());
        let tied = DeltaNorm::new(gpu, "adamw", [named("wte"), named("lm_head")]).unwrap_err();
        assert_eq!(tied, Error::Overlap { first: "wte".into(), second: "lm_head".into() });
        let twice = DeltaNorm::new(gpu, "adamw", [named("wte"), named("wte")]).unwrap_err();
        assert_eq!(twice, Error::DuplicateName { tensor: "wte".into() });

        let delta = DeltaNorm::new(gpu, "adamw", [named("wte")]).unwrap();
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        let nothing = Err(Error::NothingKept { set: "adamw".into() });
        assert_eq!(delta.record_after(&mut encoder), nothing);
        delta.record_before(&mut encoder);
        delta.record_after(&mut encoder).unwrap();
        assert_eq!(delta.record_after(&mut encoder), nothing, "the copy is used up");
    }
}

#[test]
fn a_small_binding_limit_cuts_tensors() {
    for adapter in common::adapters::named("all").unwrap() {
        let limits = wgpu::Limits { max_storage_buffer_binding_size: 4096, ..adapter.limits() };
        let gpu = common::adapters::open_with(&adapter, limits).unwrap().context;
        for (format, len) in [(Format::F32, 5001), (Format::F16, 5001)] {
            let page = Page::new(&gpu, format, len, 4);
            let delta = DeltaNorm::new(&gpu, "adamw", [("wte".to_owned(), page.slice())]).unwrap();
            let bytes = |value: u8| vec![value; len * format.size() as usize];
            let (before, after) = (bytes(0x30), bytes(0x31));
            let report = measure(&gpu, &delta, &page, &before, &after);
            let (norm, found_inf) = expected(format, &before, &after);
            assert_eq!((report.total_norm, report.found_inf), ((!found_inf).then_some(norm), found_inf));
        }
    }
}
