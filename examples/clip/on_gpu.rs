//! The step on the GPU, as an engine would record it.

use std::time::{Duration, Instant};

use gradclip::{ClipNorm, Context, GradSet, LossScale, Measure, Prepare, TensorSlice, wgpu};

use super::outcome::Outcome;
use super::tensors::Tensor;

/// How long the parts took.
pub struct Times {
    /// Upload, planning, and the compilation of the kernels.
    pub prepare: Duration,
    /// The step: recorded, submitted and waited for.
    pub step: Duration,
}

/// Uploads the tensors, runs one step and reads everything back.
pub fn step(
    gpu: &Context,
    tensors: &[Tensor],
    scale: LossScale,
    clip: ClipNorm,
) -> Result<(Outcome, Times), String> {
    let start = Instant::now();
    let buffers: Vec<wgpu::Buffer> =
        tensors.iter().map(|tensor| upload(gpu, tensor)).collect::<Result<_, _>>()?;
    let mut builder = GradSet::builder("clip");
    for (tensor, buffer) in tensors.iter().zip(&buffers) {
        let slice = TensorSlice { buffer, offset: 0, len: tensor.len(), format: tensor.format };
        builder = builder.tensor(&tensor.name, slice);
    }
    let set = builder.build(gpu).map_err(|e| e.to_string())?;
    // For the norm after the step.
    set.prepare([Prepare::Measure]).map_err(|e| e.to_string())?;
    // Some drivers compile a kernel when it first runs. This step has neither scale nor limit, so it writes nothing.
    submit(gpu, &set, LossScale::ONE, None)?;
    wait(gpu)?;
    let prepare = start.elapsed();

    let start = Instant::now();
    submit(gpu, &set, scale, Some(clip))?;
    wait(gpu)?;
    let times = Times { prepare, step: start.elapsed() };

    let report = set.read_report().map_err(|e| e.to_string())?;
    let results = tensors
        .iter()
        .zip(&buffers)
        .map(|(tensor, buffer)| download(gpu, tensor, buffer))
        .collect::<Result<_, _>>()?;
    let norm_after = if report.skipped { None } else { measure(gpu, &set)? };
    let outcome = Outcome {
        found_inf: report.found_inf,
        overflow: report.overflow,
        norm: report.total_norm,
        norm_after,
        coefficient: report.coefficient,
        factor: report.factor,
        nonfinite: tensors.iter().map(|tensor| report.nonfinite_in(&tensor.name)).collect(),
        results,
    };
    Ok((outcome, times))
}

fn submit(gpu: &Context, set: &GradSet, scale: LossScale, clip: Option<ClipNorm>) -> Result<(), String> {
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    set.record(&mut encoder, scale, clip).map_err(|e| e.to_string())?;
    gpu.queue().submit([encoder.finish()]);
    Ok(())
}

/// The norm of the gradients as they are.
fn measure(gpu: &Context, set: &GradSet) -> Result<Option<f64>, String> {
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let measured = set.measure(&mut encoder, LossScale::ONE, Measure::norm()).map_err(|e| e.to_string())?;
    gpu.queue().submit([encoder.finish()]);
    Ok(measured.read().map_err(|e| e.to_string())?.total_norm)
}

fn wait(gpu: &Context) -> Result<(), String> {
    gpu.device().poll(wgpu::PollType::wait_indefinitely()).map(|_| ()).map_err(|e| e.to_string())
}

fn upload(gpu: &Context, tensor: &Tensor) -> Result<wgpu::Buffer, String> {
    use wgpu::BufferUsages as Usage;
    let buffer = create(gpu, tensor, Usage::STORAGE | Usage::COPY_SRC, true)?;
    {
        let mut view =
            buffer.get_mapped_range_mut(..).map_err(|e| format!("tensor {:?}: {e}", tensor.name))?;
        view.slice(..tensor.bytes.len()).copy_from_slice(&tensor.bytes);
    }
    buffer.unmap();
    Ok(buffer)
}

fn download(gpu: &Context, tensor: &Tensor, buffer: &wgpu::Buffer) -> Result<Vec<u8>, String> {
    use wgpu::BufferUsages as Usage;
    let staging = create(gpu, tensor, Usage::MAP_READ | Usage::COPY_DST, false)?;
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
    gpu.queue().submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |_| {});
    wait(gpu)?;
    let view = staging.get_mapped_range(..).map_err(|e| format!("tensor {:?}: {e}", tensor.name))?;
    Ok(view[..tensor.bytes.len()].to_vec())
}

/// A buffer with room for the tensor's words, and for one word if it has none.
fn create(
    gpu: &Context,
    tensor: &Tensor,
    usage: wgpu::BufferUsages,
    mapped: bool,
) -> Result<wgpu::Buffer, String> {
    let size = (4 * tensor.format.words(tensor.len())).max(4);
    let limit = gpu.device().limits().max_buffer_size;
    if size > limit {
        let name = &tensor.name;
        return Err(format!(
            "tensor {name:?} has {size} bytes, but a buffer of this adapter at most {limit}; try --cpu"
        ));
    }
    let scope = gpu.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let buffer = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: Some(&tensor.name),
        size,
        usage,
        mapped_at_creation: mapped,
    });
    match pollster::block_on(scope.pop()) {
        None => Ok(buffer),
        Some(_) => {
            Err(format!("tensor {:?}: no GPU memory left for its {size} bytes; try --cpu", tensor.name))
        }
    }
}
