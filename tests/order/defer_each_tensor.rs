//! Tensors with factors of their own have no single one that an optimizer's kernel could apply.
use gradclip::{Error, GradScaler, GradSet, Limit, wgpu};

pub fn step(
    scaler: &GradScaler,
    grads: &GradSet,
    encoder: &mut wgpu::CommandEncoder,
    max_norm: f32,
) -> Result<(), Error> {
    let step = scaler.begin(grads)?.unscale().limit(Limit::each_tensor(max_norm));
    let step = step.record_deferred(encoder)?;
    scaler.update(encoder, [step])
}

fn main() {}
