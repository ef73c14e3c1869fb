//! Where a step clips: the right way, and the three classical mistakes.

use gradclip::{ClipNorm, Context, Error, Format, GradScaler, GradSet, LossScale, TensorSlice, wgpu};

use crate::kernels::{Task, record};
use crate::model::{MICROBATCHES, OPTIMIZERS, Tensor, tensors};
use crate::network::{Layer, Network};
use crate::optimizer::{self, Moments};
use crate::rule::Rule;

/// The limit of each optimizer's norm.
pub const MAX_NORM: f32 = 0.2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Correct,
    WrongOrder,
    PerTensor,
    PerMicrobatch,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::WrongOrder => "wrong order",
            Self::PerTensor => "per tensor",
            Self::PerMicrobatch => "per microbatch",
        }
    }
}

/// Tensors that share one norm and one verdict. Clipped the right way, these are the tensors of an optimizer.
struct Group {
    set: GradSet,
    /// The same tensors again, for a mistake that looks at them too early.
    early: Option<GradSet>,
    clip_early: Vec<Task>,
    optimizer: Vec<Task>,
}

pub struct Clipping {
    method: Method,
    clip: ClipNorm,
    groups: Vec<Group>,
    /// Which optimizer each group belongs to.
    pub optimizer_of: Vec<usize>,
}

impl Clipping {
    pub fn new(gpu: &Context, network: &Network, method: Method, rule: Rule) -> Result<Self, Error> {
        let moments = Moments::new(network);
        let (mut groups, mut optimizer_of) = (Vec::new(), Vec::new());
        for (i, (name, layers)) in OPTIMIZERS.iter().enumerate() {
            let all: Vec<Tensor> = layers.iter().flat_map(|&layer| tensors(layer)).collect();
            let parts: Vec<(String, Vec<Tensor>)> = match method {
                Method::PerTensor => all.into_iter().map(|t| (t.name.clone(), vec![t])).collect(),
                _ => vec![((*name).into(), all)],
            };
            for (name, tensors) in parts {
                let twice = matches!(method, Method::WrongOrder | Method::PerMicrobatch);
                let set = |name: &str| grad_set(gpu, name, &tensors, &network.layers, twice);
                let early = twice.then(|| set(&format!("{name}, early"))).transpose()?;
                let set = set(&name)?;
                let clip_early = match (&early, method) {
                    (Some(early), Method::PerMicrobatch) => clip_early(network, early, layers),
                    _ => Vec::new(),
                };
                let optimizer = optimizer::tasks(rule, network, &moments, &set, &tensors);
                groups.push(Group { set, early, clip_early, optimizer });
                optimizer_of.push(i);
            }
        }
        Ok(Self { method, clip: ClipNorm::new(MAX_NORM)?, groups, optimizer_of })
    }

    /// Records a whole step: backward of all microbatches, one decision a group, the optimizers, the update of the
    /// scale.
    pub fn record_step(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        scaler: &GradScaler,
        network: &Network,
    ) -> Result<(), Error> {
        network.zero_gradients(encoder);
        let mut open = self.groups.iter().map(|g| scaler.begin(&g.set)).collect::<Result<Vec<_>, _>>()?;
        let mut too_early = Vec::new();
        for microbatch in 0..MICROBATCHES {
            network.record_microbatch(encoder, microbatch);
            open.iter_mut().for_each(|step| _ = step.microbatch());
            if self.method == Method::PerMicrobatch && microbatch + 1 < MICROBATCHES {
                for group in &self.groups {
                    let Some(early) = &group.early else { continue };
                    let step = scaler.begin(early)?.unscale().limit(self.clip);
                    too_early.push(step.record_deferred(encoder)?);
                    record(encoder, &group.clip_early);
                }
            }
        }
        let mut recorded = Vec::new();
        for (group, step) in self.groups.iter().zip(open) {
            recorded.push(match (&group.early, self.method) {
                (Some(early), Method::WrongOrder) => {
                    // The types of a step allow no clip before unscale, so this one goes around the scaler.
                    early.record(encoder, LossScale::ONE, Some(self.clip))?;
                    step.unscale().record_deferred(encoder)?
                }
                _ => step.unscale().limit(self.clip).record_deferred(encoder)?,
            });
            record(encoder, &group.optimizer);
        }
        scaler.update(encoder, recorded.into_iter().chain(too_early))
    }
}

fn grad_set(
    gpu: &Context,
    name: &str,
    tensors: &[Tensor],
    layers: &[Layer],
    shared: bool,
) -> Result<GradSet, Error> {
    let mut builder = GradSet::builder(name);
    for tensor in tensors {
        let slice = TensorSlice {
            buffer: &layers[tensor.layer].gradients,
            offset: 2 * tensor.first as u64,
            len: tensor.len as u64,
            format: Format::F16,
        };
        builder = builder.tensor(&tensor.name, slice);
    }
    // A mistake opens a second set over the same gradients.
    if shared { builder.shares_buffers() } else { builder }.build(gpu)
}

fn clip_early(network: &Network, set: &GradSet, layers: &[usize]) -> Vec<Task> {
    let kernels = &network.kernels;
    let task = |&layer: &usize| {
        let gradients = &network.layers[layer].gradients;
        let resources = [wgpu::BindingResource::Buffer(set.verdict()), gradients.as_entire_binding()];
        kernels.task(&kernels.clip_early, gradients.size() as usize / 4, &resources)
    };
    layers.iter().map(task).collect()
}
