//! Accumulation has not ended.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    _: ClipNorm,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.record(encoder)?;
    scaler.update(encoder, [step])
}

fn main() {}
