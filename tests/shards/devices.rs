//! Two devices in one process, each with half of the tensors of one model.

use std::path::Path;

use gradclip::{ClipNorm, Context, Format, LossScale, wgpu};
use safetensors::{Dtype, SafeTensors};

use crate::common::adapters::label;
use crate::common::gpus;
use crate::parts::{Part, Tensors, merge, on_reference};

/// Loss scales and gradients of a recorded PyTorch run that overflows at first.
fn recorded() -> Vec<(f32, Tensors)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/digits_mlp_amp_f16");
    let log = std::fs::read_to_string(file.with_extension("json")).unwrap();
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let bytes = std::fs::read(file.with_extension("safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let step = |row: &serde_json::Value| {
        let prefix = format!("grad/{}/", row["step"]);
        let mut names: Vec<_> = tensors.names().into_iter().filter(|n| n.starts_with(&prefix)).collect();
        names.sort_unstable();
        let gradients = names.iter().map(|name| {
            let view = tensors.tensor(name).unwrap();
            assert_eq!(view.dtype(), Dtype::F32);
            (Format::F32, view.data().to_vec())
        });
        (row["scale"].as_f64().unwrap() as f32, gradients.collect())
    };
    log["steps"].as_array().unwrap().iter().map(step).collect()
}

/// The first adapter with Vulkan and the first with GL, or what there is.
fn two() -> [&'static Context; 2] {
    let of = |backend| gpus().iter().find(|gpu| gpu.info.backend == backend);
    let first = of(wgpu::Backend::Vulkan).unwrap_or(&gpus()[0]);
    let second = of(wgpu::Backend::Gl).or(gpus().last()).unwrap_or(first);
    println!("{} and {}", label(&first.info), label(&second.info));
    [&first.context, &second.context]
}

#[test]
fn halves_of_a_model_on_two_devices_make_one_step() {
    let devices = two();
    let clip = Some(ClipNorm::new(0.5).unwrap());
    let mut skipped = 0;
    for (scale, tensors) in recorded() {
        let scale = LossScale::new(scale).unwrap();
        let (want, want_bytes) = on_reference(&tensors, scale, clip);
        // Every other tensor.
        let half = |odd: usize| tensors.iter().skip(odd).step_by(2).cloned().collect::<Tensors>();
        let parts = [0, 1].map(|i| Part::new(devices[i], &half(i)));
        let ledgers = [0, 1].map(|i| parts[i].measure(scale, clip).unwrap());
        let merged = merge(&ledgers);
        assert_eq!(merged.found_inf(), want.found_inf);
        for (i, part) in parts.iter().enumerate() {
            let report = part.finish(&merged).unwrap();
            let norm = (!want.found_inf || want.overflow).then(|| want.total_norm.to_f64());
            assert_eq!(report.total_norm, norm);
            assert_eq!(report.skipped, want.found_inf);
            let wanted: Vec<Vec<u8>> = want_bytes.iter().skip(i).step_by(2).cloned().collect();
            assert_eq!(part.bytes(), wanted);
        }
        skipped += u32::from(want.found_inf);
    }
    assert!(skipped > 0, "no overflow step among the recorded ones");
}
