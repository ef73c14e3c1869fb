//! Recorded PyTorch runs: what the crate makes of real gradients, beside what PyTorch made of them.

mod common;

use std::path::Path;

use common::adapters::label;
use common::cases::{Answer, Input};
use common::gpus;
use common::runner::{Layout, difference, on_gpu, on_reference};
use gradclip::{ClipNorm, Format, LossScale};
use safetensors::{Dtype, SafeTensors};

/// Name; steps in all, skipped and clipped; the largest difference of a result from PyTorch's, in units in the last
/// place of the format. PyTorch rounds more often: after unscaling, after 1 / (norm + eps), after each product, and in
/// the 16-bit runs (`digits_mlp_bf16`, `digits_mlp_f16`) the norm and the coefficient too have 16 bits.
const RUNS: [(&str, [usize; 3], u32); 5] = [
    ("digits_mlp_amp_f16", [10, 5, 1], 0),
    ("digits_mlp_scale_1000", [4, 0, 1], 1),
    ("digits_mlp_bf16", [3, 0, 1], 1),
    ("digits_mlp_f16", [3, 0, 1], 2),
    ("gpt_amp_f16", [4, 0, 2], 3),
];

#[derive(serde::Deserialize)]
struct Log {
    eps: f32,
    steps: Vec<Row>,
}

#[derive(serde::Deserialize)]
struct Row {
    step: usize,
    scale: f32,
    max_norm: f32,
    found_inf: bool,
    /// In f64, of the unscaled gradients; absent where PyTorch found inf or NaN.
    norm_f64: Option<f64>,
}

struct Recorded {
    input: Input,
    found_inf: bool,
    norm_f64: Option<f64>,
    /// What PyTorch made of the tensors; empty where it found inf or NaN.
    results: Vec<Vec<u8>>,
}

fn read(run: &str) -> Vec<Recorded> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(run);
    let log = std::fs::read_to_string(file.with_extension("json")).unwrap();
    let log: Log = serde_json::from_str(&log).unwrap();
    let bytes = std::fs::read(file.with_extension("safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let record = |row: Row| {
        let prefix = format!("grad/{}/", row.step);
        let mut names: Vec<&str> = file.names().into_iter().filter_map(|n| n.strip_prefix(&prefix)).collect();
        names.sort_unstable();
        let tensor = |kind: &str, name: &str| {
            let view = file.tensor(&format!("{kind}/{}/{name}", row.step)).unwrap();
            (format(view.dtype()), view.data().to_vec())
        };
        let compared = if row.found_inf { &[][..] } else { &names[..] };
        Recorded {
            input: Input {
                name: format!("{run} step {}", row.step),
                scale: LossScale::new(row.scale).unwrap(),
                clip: Some(ClipNorm::new(row.max_norm).unwrap().with_eps(log.eps).unwrap()),
                tensors: names.iter().map(|name| tensor("grad", name)).collect(),
            },
            found_inf: row.found_inf,
            norm_f64: row.norm_f64,
            results: compared.iter().map(|name| tensor("result", name).1).collect(),
        }
    };
    log.steps.into_iter().map(record).collect()
}

fn format(dtype: Dtype) -> Format {
    match dtype {
        Dtype::F32 => Format::F32,
        Dtype::F16 => Format::F16,
        Dtype::BF16 => Format::Bf16,
        other => panic!("no run was recorded in {other:?}"),
    }
}

/// Elements of a tensor as bits and as values.
fn elements(format: Format, bytes: &[u8]) -> Vec<(u32, f64)> {
    let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    let element = |b: &[u8]| match format {
        Format::F32 => {
            let bits = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            (bits, f64::from(f32::from_bits(bits)))
        }
        Format::F16 => (half(b).into(), half::f16::from_bits(half(b)).to_f64()),
        Format::Bf16 => (half(b).into(), half::bf16::from_bits(half(b)).to_f64()),
    };
    bytes.chunks_exact(format.size() as usize).map(element).collect()
}

/// The unit in the last place of `value` in a format.
fn ulp(format: Format, value: f64) -> f64 {
    let (fraction_bits, lowest) = match format {
        Format::F32 => (23, -149),
        Format::F16 => (10, -24),
        Format::Bf16 => (7, -133),
    };
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    2f64.powi((exponent - fraction_bits).max(lowest))
}

/// How far the results are from PyTorch's, in bits. Signs have to be the same, those of zeros too.
fn furthest_from_pytorch(recorded: &Recorded, answer: &Answer) -> u32 {
    let mut furthest = 0;
    for (((format, _), ours), theirs) in
        recorded.input.tensors.iter().zip(&answer.tensors).zip(&recorded.results)
    {
        assert_eq!(ours.len(), theirs.len());
        let sign = 1 << (8 * format.size() - 1);
        for ((ours, _), (theirs, _)) in elements(*format, ours).into_iter().zip(elements(*format, theirs)) {
            assert_eq!(ours & sign, theirs & sign, "{}: {ours:x} {theirs:x}", recorded.input.name);
            furthest = furthest.max((ours & !sign).abs_diff(theirs & !sign));
        }
    }
    furthest
}

/// Against the same step in f64: 2 units in the last place in f32; in 16 bits the half unit of one rounding, and what
/// 24-bit factors add to it.
fn check_against_f64(recorded: &Recorded, answer: &Answer, norm: f64) {
    let Recorded { input, .. } = recorded;
    let clip = input.clip.unwrap();
    let (max_norm, eps) = (f64::from(clip.max_norm()), f64::from(clip.eps()));
    let coefficient = if norm <= max_norm { 1.0 } else { max_norm / (norm + eps) };
    for ((format, before), after) in input.tensors.iter().zip(&answer.tensors) {
        let allowed = if *format == Format::F32 { 2.0 } else { 0.501 };
        for ((_, before), (_, after)) in elements(*format, before).iter().zip(elements(*format, after)) {
            let exact = before / f64::from(input.scale.get()) * coefficient;
            let off = (after - exact).abs() / ulp(*format, exact);
            assert!(off <= allowed, "{}: {after:e} is {off} units from {exact:e}", input.name);
        }
    }
}

#[test]
fn the_reference_agrees_with_pytorch() {
    for (run, [steps, skipped, clipped], furthest) in RUNS {
        let recorded = read(run);
        let mut seen = (recorded.len(), 0, 0, 0);
        for step in &recorded {
            let name = &step.input.name;
            let answer = on_reference(&step.input);
            assert_eq!(answer.found_inf, step.found_inf, "{name}");
            assert!(!answer.overflow, "{name}");
            let Some(norm) = step.norm_f64 else {
                seen.1 += 1;
                let before: Vec<_> = step.input.tensors.iter().map(|t| t.1.clone()).collect();
                assert!(answer.tensors == before, "{name}: gradients changed");
                continue;
            };
            let off = (answer.norm - norm).abs() / ulp(Format::F32, norm);
            assert!(off <= 2.0, "{name}: norm {:e} is {off} units from {norm:e}", answer.norm);
            check_against_f64(step, &answer, norm);
            let distance = furthest_from_pytorch(step, &answer);
            if answer.coefficient == 1.0 {
                assert_eq!(distance, 0, "{name}");
            } else {
                seen.2 += 1;
                seen.3 = seen.3.max(distance);
            }
        }
        assert_eq!(
            seen,
            (steps, skipped, clipped, furthest),
            "{run}: steps, skipped, clipped, ulp from PyTorch"
        );
        assert!(furthest <= 3);
    }
}

#[test]
fn every_adapter_agrees_with_the_reference() {
    for (run, ..) in RUNS {
        for Recorded { input, .. } in read(run) {
            let formats: Vec<Format> = input.tensors.iter().map(|t| t.0).collect();
            let want = on_reference(&input);
            for gpu in gpus() {
                for layout in [Layout::OwnBuffers, Layout::Arena] {
                    let got = on_gpu(&gpu.context, &input, layout).unwrap();
                    let wrong = difference(&got, &want, &formats);
                    assert_eq!(wrong, None, "{} {layout:?} on {}", input.name, label(&gpu.info));
                }
            }
        }
    }
}
