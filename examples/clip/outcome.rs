//! What a step did, from the GPU or from the CPU reference, and whether the two agree.

use gradclip::reference::{TensorBits, step};
use gradclip::{ClipNorm, LossScale, Nonfinite};

use super::tensors::Tensor;

/// What one step returned.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub found_inf: bool,
    pub overflow: bool,
    /// `None` if something is not finite.
    pub norm: Option<f64>,
    /// The norm of the results, measured by a second read. `None` if the step was skipped.
    pub norm_after: Option<f64>,
    /// `None` if the step was skipped, as is the factor.
    pub coefficient: Option<f64>,
    pub factor: Option<f64>,
    /// In the order of the tensors, as are the results.
    pub nonfinite: Vec<Nonfinite>,
    pub results: Vec<Vec<u8>>,
}

/// The CPU reference's outcome.
pub fn on_reference(tensors: &[Tensor], scale: LossScale, clip: ClipNorm) -> Outcome {
    let mut results: Vec<Vec<u8>> = tensors.iter().map(|t| t.bytes.clone()).collect();
    let mut bits: Vec<TensorBits<'_>> = tensors
        .iter()
        .zip(&mut results)
        .map(|(tensor, bytes)| TensorBits::new(tensor.format, bytes))
        .collect();
    let done = step(&mut bits, scale, Some(clip));
    // Neither scale nor limit: a factor of 1, with which nothing is written.
    let after = (!done.skipped).then(|| step(&mut bits, LossScale::ONE, None).total_norm.to_f64());
    Outcome {
        found_inf: done.found_inf,
        overflow: done.overflow,
        norm: (done.overflow || !done.found_inf).then(|| done.total_norm.to_f64()),
        norm_after: after,
        coefficient: (!done.skipped).then(|| done.coefficient.to_f64()),
        factor: (!done.skipped).then(|| done.factor.to_f64()),
        nonfinite: done.nonfinite,
        results,
    }
}

/// How `gpu` differs from `cpu`: the numbers of the step and the first tensor. `None`: equal on every bit.
pub fn difference(tensors: &[Tensor], gpu: &Outcome, cpu: &Outcome) -> Option<String> {
    let mut found = Vec::new();
    for (what, gpu, cpu) in
        [("found_inf", gpu.found_inf, cpu.found_inf), ("overflow", gpu.overflow, cpu.overflow)]
    {
        if gpu != cpu {
            found.push(format!("{what} is {gpu}, not {cpu}"));
        }
    }
    for (what, gpu, cpu) in [
        ("norm", gpu.norm, cpu.norm),
        ("norm after", gpu.norm_after, cpu.norm_after),
        ("coefficient", gpu.coefficient, cpu.coefficient),
        ("factor", gpu.factor, cpu.factor),
    ] {
        if gpu.map(f64::to_bits) != cpu.map(f64::to_bits) {
            found.push(format!("{what} is {gpu:?}, not {cpu:?}"));
        }
    }
    found.extend(tensors.iter().enumerate().find_map(|(t, tensor)| {
        let wrong = if gpu.nonfinite[t] == cpu.nonfinite[t] {
            unlike(tensor, &gpu.results[t], &cpu.results[t])?
        } else {
            format!("holds {}, not {}", gpu.nonfinite[t], cpu.nonfinite[t])
        };
        Some(format!("{:?} {wrong}", tensor.name))
    }));
    (!found.is_empty()).then(|| found.join("; "))
}

fn unlike(tensor: &Tensor, gpu: &[u8], cpu: &[u8]) -> Option<String> {
    let size = tensor.format.size() as usize;
    let hex = |bytes: &[u8]| bytes.iter().rev().map(|b| format!("{b:02x}")).collect::<String>();
    let pairs = gpu.chunks(size).zip(cpu.chunks(size));
    let (index, (gpu, cpu)) = pairs.enumerate().find(|(_, (gpu, cpu))| gpu != cpu)?;
    Some(format!("[{index}] is 0x{}, not 0x{}", hex(gpu), hex(cpu)))
}
