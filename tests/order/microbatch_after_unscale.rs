//! A microbatch would add scaled gradients to unscaled ones.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    _: ClipNorm,
) -> Result<(), Error> {
    let mut step = scaler.begin(grads)?;
    let unscaled = step.unscale();
    step.microbatch();
    let step = unscaled.record(encoder)?;
    scaler.update(encoder, [step])
}

fn main() {}
