//! A limit of each element is no factor that an optimizer's kernel could apply.
use gradclip::{ClipValue, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    clip: ClipValue,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.unscale().limit(clip);
    let step = step.record_deferred(encoder)?;
    scaler.update(encoder, [step])
}

fn main() {}
