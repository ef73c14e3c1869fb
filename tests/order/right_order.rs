//! The order of the field compiles: also through variables, and with microbatches counted.
use gradclip::{ClipNorm, Error, GradScaler, GradSet, wgpu};

pub fn step(
    scaler: &GradScaler,
    [one, two]: [&GradSet; 2],
    encoder: &mut wgpu::CommandEncoder,
    clip: ClipNorm,
) -> Result<(), Error> {
    let mut first = scaler.begin(one)?;
    let mut second = scaler.begin(two)?;
    for _ in 0..4 {
        first.microbatch();
        second.microbatch();
    }
    let first = first.unscale().limit(clip).record(encoder)?;
    let second = second.unscale().measure_tensor_norms().record_deferred(encoder)?;
    scaler.update(encoder, [first, second])
}
