//! Tensors with factors of their own have no single one that an optimizer's kernel could apply.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    clip: ClipNorm,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.unscale().clip_grad_norm_per_tensor(clip);
    let step = step.record_deferred(encoder)?;
    scaler.update(encoder, [step])
}

fn main() {}
