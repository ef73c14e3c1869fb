//! Gradients that PyTorch recorded, from the tests of this repository.

use std::path::Path;

use gradclip::reference::{self, Outcome, TensorBits};
use gradclip::{ClipNorm, Format, LossScale, NormType};
use safetensors::{Dtype, SafeTensors};

use crate::Fallible;
use crate::cut::Cuts;

#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub format: Format,
    pub bytes: Vec<u8>,
}

/// The gradients of one optimizer step, and what it is to do with them.
#[derive(Debug, Clone)]
pub struct Step {
    pub name: String,
    pub scale: LossScale,
    pub clip: Option<ClipNorm>,
    pub tensors: Vec<Tensor>,
    /// The loss scale that PyTorch's `GradScaler` went on with, where there was one.
    pub next_scale: Option<f32>,
}

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
    next_scale: Option<f32>,
}

impl Step {
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.tensors.iter().map(|tensor| tensor.bytes.len())
    }

    /// What a rank has of the gradients.
    pub fn part(&self, cuts: &Cuts, rank: usize) -> Vec<Tensor> {
        let part = |(tensor, range): (&Tensor, std::ops::Range<usize>)| Tensor {
            name: tensor.name.clone(),
            format: tensor.format,
            bytes: tensor.bytes[range].to_vec(),
        };
        self.tensors.iter().zip(cuts.of(rank)).map(part).collect()
    }

    /// The step of a single process, on the CPU: what it decides, and the bytes after it.
    pub fn on_reference(&self) -> (Outcome, Vec<Vec<u8>>) {
        let mut bytes: Vec<Vec<u8>> = self.tensors.iter().map(|tensor| tensor.bytes.clone()).collect();
        let outcome = reference::step(&mut self.bits(&mut bytes), self.scale, self.clip);
        (outcome, bytes)
    }

    /// The norm of gradients of this shape that are no longer scaled.
    pub fn norm_of(&self, mut bytes: Vec<Vec<u8>>) -> f64 {
        reference::plain::norm_f64(&self.bits(&mut bytes), 1.0)
    }

    fn bits<'a>(&self, bytes: &'a mut [Vec<u8>]) -> Vec<TensorBits<'a>> {
        let each = self.tensors.iter().zip(bytes);
        each.map(|(tensor, bytes)| TensorBits::new(tensor.format, bytes)).collect()
    }

    fn with(&self, name: &str, scale: f32, clip: Option<ClipNorm>) -> Fallible<Self> {
        Ok(Self { name: name.into(), scale: LossScale::new(scale)?, clip, ..self.clone() })
    }
}

/// Every step of a recorded run.
pub fn recorded(run: &str) -> Fallible<Vec<Step>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(run);
    let read = |extension: &str| {
        let file = file.with_extension(extension);
        std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))
    };
    let log: Log = serde_json::from_slice(&read("json")?)?;
    let bytes = read("safetensors")?;
    let file = SafeTensors::deserialize(&bytes)?;
    let step = |row: Row| {
        let prefix = format!("grad/{}/", row.step);
        let mut names: Vec<&str> =
            file.names().into_iter().filter(|name| name.starts_with(&prefix)).collect();
        names.sort_unstable();
        let tensor = |name: &str| {
            let view = file.tensor(name)?;
            let format = match view.dtype() {
                Dtype::F32 => Format::F32,
                Dtype::F16 => Format::F16,
                Dtype::BF16 => Format::Bf16,
                other => return Err(format!("{name} is {other:?}").into()),
            };
            Ok(Tensor { name: name[prefix.len()..].into(), format, bytes: view.data().to_vec() })
        };
        Ok(Step {
            name: format!("{run} {}", row.step),
            scale: LossScale::new(row.scale)?,
            clip: Some(ClipNorm::new(row.max_norm)?.with_eps(log.eps)?),
            tensors: names.into_iter().map(tensor).collect::<Fallible<_>>()?,
            next_scale: row.next_scale,
        })
    };
    log.steps.into_iter().map(step).collect()
}

/// Steps over f32, f16 and bf16 gradients in one set: of three recorded runs, so the loss scales are made up.
pub fn mixed() -> Fallible<Vec<Step>> {
    let runs = ["digits_mlp_scale_1000", "digits_mlp_f16", "digits_mlp_bf16"];
    let mut tensors = Vec::new();
    for run in runs {
        let Some(first) = recorded(run)?.into_iter().next() else {
            return Err(format!("{run} is empty").into());
        };
        tensors.extend(first.tensors.into_iter().map(|t| Tensor { name: format!("{run}/{}", t.name), ..t }));
    }
    let set = Step { name: String::new(), scale: LossScale::ONE, clip: None, tensors, next_scale: None };
    let clip = ClipNorm::new;
    Ok(vec![
        set.with("mixed, scale 1000, limit 0.01", 1000.0, Some(clip(0.01)?))?,
        set.with("mixed, no limit", 64.0, None)?,
        set.with("mixed, nothing to do", 1.0, Some(clip(1e4)?))?,
        set.with("mixed, L1 norm, limit 3", 16.0, Some(clip(3.0)?.with_norm_type(NormType::L1)))?,
        set.with("mixed, limit 0", 1.0, Some(clip(0.0)?))?,
        // 2^-24: the largest f16 gradients do not fit when divided by it, and only some ranks have one.
        set.with("mixed, a result overflows", 5.960_464_5e-8, None)?,
    ])
}
