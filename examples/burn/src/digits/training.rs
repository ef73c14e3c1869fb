//! Training with one way of clipping.

use burn::grad_clipping::GradientClippingConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use gradclip::{ClipNorm, LossScale};
use gradclip_burn_example::Clipper;

use super::data::{Batches, PIXELS, Split};
use super::model::Net;
use super::oracle;

pub const BATCH: usize = 64;
const RATE: f64 = 0.05;
/// Between the norms that the first steps have: some clip and some do not.
pub const MAX_NORM: f32 = 1.5;

/// The limit of every way of clipping.
pub fn limit() -> ClipNorm {
    ClipNorm::new(MAX_NORM).expect("1.5 is a limit")
}

/// How the gradients are clipped.
pub enum Clipping {
    /// By gradclip, in place: one norm.
    Global(Clipper),
    /// The same, and the host waits for the verdict before the optimizer steps.
    GlobalAwaited(Clipper),
    /// By `gradclip::reference` on the CPU.
    Reference,
    /// By Burn's optimizer: a norm for each parameter.
    PerParameter,
    Nothing,
}

/// A model, its optimizer and a way of clipping.
pub struct Trainer {
    pub model: Net,
    optimizer: ModuleOptimizer,
    pub clipping: Clipping,
}

impl Trainer {
    pub fn new(model: &Net, clipping: Clipping) -> Self {
        let mut config = SgdConfig::new().with_momentum(Some(MomentumConfig {
            momentum: 0.9,
            dampening: 0.0,
            nesterov: false,
        }));
        if let Clipping::PerParameter = clipping {
            config = config.with_gradient_clipping(Some(GradientClippingConfig::Norm(MAX_NORM)));
        }
        Self { model: model.clone(), optimizer: config.init(), clipping }
    }

    /// The loss, and the gradients as backward leaves them.
    pub fn backward(&self, batch: &Batch) -> (Tensor<1>, GradientsParams) {
        let loss = self.model.loss(batch.images.clone(), batch.labels.clone());
        let grads = loss.backward();
        (loss.inner(), GradientsParams::from_grads(grads, &self.model))
    }

    /// Clips and steps. `Ok(false)`: the step was skipped, with the model and the optimizer as they were.
    ///
    /// Where a gradient is NaN or infinite gradclip changes none, so an optimizer that steps all the same writes NaN into
    /// the weights and its momentum. Burn's optimizers run on the host's word, so only a host that has read the verdict
    /// can leave the step out, and reading waits for the GPU. That is what `GlobalAwaited` does; with a loss scale, whose
    /// method it is to overflow now and then, there is no other way. Without one a NaN is a fault and not routine:
    /// `Global` steps at once, and the caller asks for the report when it next reads a loss, having waited then anyway,
    /// and goes back to a checkpoint if need be.
    pub fn apply(&mut self, mut grads: GradientsParams) -> Result<bool, String> {
        let (scale, limit) = (LossScale::ONE, limit());
        match &mut self.clipping {
            Clipping::Global(clipper) => {
                clipper.clip(&self.model, &mut grads, scale, limit).map_err(|e| e.to_string())?;
            }
            Clipping::GlobalAwaited(clipper) => {
                clipper.clip(&self.model, &mut grads, scale, limit).map_err(|e| e.to_string())?;
                if clipper.report().map_err(|e| e.to_string())?.skipped {
                    return Ok(false);
                }
            }
            Clipping::Reference => {
                let (outcome, _) = oracle::clip(&self.model, &mut grads, scale, limit);
                if outcome.skipped {
                    return Ok(false);
                }
            }
            Clipping::PerParameter | Clipping::Nothing => {}
        }
        self.model = self.optimizer.step(RATE, self.model.clone(), grads);
        Ok(true)
    }
}

/// Images and labels on the device.
#[derive(Clone)]
pub struct Batch {
    pub images: Tensor<4>,
    pub labels: Tensor<1, Int>,
}

impl Batch {
    /// With images that are NaN throughout.
    pub fn with_nan(&self) -> Self {
        Self { images: self.images.clone() * f32::NAN, labels: self.labels.clone() }
    }
}

/// `count` batches, the same everywhere.
pub fn batches(count: usize, device: &Device) -> Result<Vec<Batch>, String> {
    let split = Split::new()?;
    let mut dealer = Batches::new(split.train.len(), 1);
    let batch = |_| {
        let rows = dealer.next(BATCH);
        let pixels: Vec<f32> =
            rows.iter().flat_map(|&row| split.train.image(row as usize).iter().copied()).collect();
        let labels: Vec<i32> = rows.iter().map(|&row| split.train.labels[row as usize] as i32).collect();
        debug_assert_eq!(pixels.len(), BATCH * PIXELS);
        Batch {
            images: Tensor::from_data(TensorData::new(pixels, [BATCH, 1, 8, 8]), device),
            labels: Tensor::from_data(TensorData::new(labels, [BATCH]), device),
        }
    };
    Ok((0..count).map(batch).collect())
}
