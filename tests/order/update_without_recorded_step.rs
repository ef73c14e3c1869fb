//! The verdict that the scale is updated from does not exist yet.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    clip: ClipNorm,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.unscale().limit(clip);
    scaler.update(encoder, [step])
}

fn main() {}
