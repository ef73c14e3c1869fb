//! Limiting scaled gradients: the true limit would be max_norm / scale.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    clip: ClipNorm,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.limit(clip).record(encoder)?;
    scaler.update(encoder, [step])
}

fn main() {}
