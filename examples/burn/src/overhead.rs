//! What clipping adds to a step.

use std::time::{Duration, Instant};

use gradclip_burn_example::Clipper;

use crate::digits::gpu::Gpu;
use crate::digits::model::Net;
use crate::digits::training::{Batch, Clipping, Trainer};

/// Steps before the first that counts: Burn compiles kernels in them, and its memory settles.
pub const WARM_UP: usize = 3;

/// Median time of a step by each way of clipping, in turns, so that what slows the machine slows all.
pub fn medians(gpu: &Gpu, model: &Net, batches: &[Batch]) -> Result<Vec<(&'static str, Duration)>, String> {
    let clipper = || Clipper::new(&gpu.context);
    let mut trainers = [
        ("none", Clipping::Nothing),
        ("Burn's, a norm for each parameter", Clipping::PerParameter),
        ("gradclip, one norm", Clipping::Global(clipper())),
        ("gradclip, one norm, verdict awaited", Clipping::GlobalAwaited(clipper())),
    ]
    .map(|(name, clipping)| (name, Trainer::new(model, clipping), Vec::new()));
    for (i, batch) in batches.iter().enumerate() {
        for (_, trainer, times) in &mut trainers {
            let start = Instant::now();
            let (_, grads) = trainer.backward(batch);
            trainer.apply(grads)?;
            gpu.device.sync().map_err(|e| e.to_string())?;
            if i >= WARM_UP {
                times.push(start.elapsed());
            }
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    Ok(trainers.into_iter().map(|(name, _, times)| (name, median(times))).collect())
}
