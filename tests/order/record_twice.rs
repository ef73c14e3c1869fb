//! The gradients would be scaled twice.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    clip: ClipNorm,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.unscale().limit(clip);
    let first = step.record(encoder)?;
    let second = step.record(encoder)?;
    scaler.update(encoder, [first, second])
}

fn main() {}
