//! Two runs from the same weights on the same batches: one clipped by gradclip in place, the other by
//! `gradclip::reference` on the CPU.

use burn::grad_clipping::GradientClipping;
use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use gradclip::{LossScale, Report};
use gradclip_burn_example::Clipper;

use super::gpu::Gpu;
use super::model::Net;
use super::oracle::{self, Bits};
use super::training::{Batch, Clipping, MAX_NORM, Trainer, limit};

/// One step of both runs.
pub struct Step {
    pub loss: f32,
    pub report: Report,
    /// The norm that the reference finds over the gradients of the first run, read back before the clip; `None` if one is
    /// not finite.
    pub reference_norm: Option<f64>,
    /// Whether the gradients after the clip are what the reference makes of those, on every bit.
    pub gradients_equal: bool,
    /// Whether the parameters of both runs are equal after the step, on every bit.
    pub parameters_equal: bool,
    /// Whether some gradient had to be copied.
    pub copied: bool,
}

/// Both runs, a step for each batch.
pub fn compare(
    gpu: &Gpu,
    model: &Net,
    batches: &[Batch],
    mut watch: impl FnMut(usize, &Step),
) -> Result<Vec<Step>, String> {
    let mut clipper = Clipper::new(&gpu.context);
    // The comparison clips by itself, to look at the gradients between the clip and the optimizer.
    let mut clipped = Trainer::new(model, Clipping::Nothing);
    let mut reference = Trainer::new(model, Clipping::Reference);
    let mut steps = Vec::new();
    for (i, batch) in batches.iter().enumerate() {
        let (loss, mut grads) = clipped.backward(batch);
        let mut expected = oracle::gradients(&clipped.model, &grads);
        let outcome = oracle::reference(&mut expected, LossScale::ONE, limit());
        clipper.clip(&clipped.model, &mut grads, LossScale::ONE, limit()).map_err(|e| e.to_string())?;
        let report = clipper.report().map_err(|e| e.to_string())?;
        let gradients_equal = oracle::gradients(&clipped.model, &grads) == expected;
        clipped.apply(grads)?;

        let (_, grads) = reference.backward(batch);
        reference.apply(grads)?;
        let step = Step {
            loss: loss.into_scalar::<f32>(),
            report,
            reference_norm: (!outcome.found_inf).then(|| outcome.total_norm.to_f64()),
            gradients_equal,
            parameters_equal: oracle::parameters(&clipped.model) == oracle::parameters(&reference.model),
            copied: !clipper.copied().is_empty(),
        };
        watch(i, &step);
        steps.push(step);
    }
    Ok(steps)
}

/// Norms of one step by each way of clipping, from the same weights and batch.
pub struct Ways {
    /// Of the clipped gradient.
    pub gradient: f64,
    /// Of what the parameters changed by.
    pub update: f64,
    pub parameters: Bits,
}

/// By gradclip, by Burn's optimizer for each parameter, and by no one.
pub fn ways(gpu: &Gpu, model: &Net, batch: &Batch) -> Result<[Ways; 3], String> {
    let start = oracle::parameters(model);
    let way = |clipping: Clipping, clip: &dyn Fn(&mut GradientsParams) -> Result<(), String>| {
        let mut trainer = Trainer::new(model, clipping);
        let (_, mut grads) = trainer.backward(batch);
        clip(&mut grads)?;
        let gradient = norm(&oracle::gradients(model, &grads));
        let (_, grads) = trainer.backward(batch);
        trainer.apply(grads)?;
        let parameters = oracle::parameters(&trainer.model);
        Ok::<_, String>(Ways { gradient, update: oracle::distance(&start, &parameters), parameters })
    };
    Ok([
        way(Clipping::Global(Clipper::new(&gpu.context)), &|grads| {
            let clipped = Clipper::new(&gpu.context).clip(model, grads, LossScale::ONE, limit());
            clipped.map_err(|e| e.to_string())
        })?,
        way(Clipping::PerParameter, &|grads| {
            burn::module::Module::visit(model, &mut PerParameter(grads));
            Ok(())
        })?,
        way(Clipping::Nothing, &|_| Ok(()))?,
    ])
}

/// What Burn's optimizer does to each gradient before it steps.
struct PerParameter<'a>(&'a mut GradientsParams);

impl ModuleVisitor for PerParameter<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = self.0.remove::<D>(param.id) {
            let clipped = GradientClipping::Norm(MAX_NORM).clip_gradient(grad);
            self.0.register(param.id, clipped);
        }
    }
}

fn norm(bits: &Bits) -> f64 {
    let zero = bits.iter().map(|words| vec![0; words.len()]).collect();
    oracle::distance(bits, &zero)
}
