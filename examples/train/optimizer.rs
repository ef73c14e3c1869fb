//! Fused optimizers: they read the verdict of their gradients, and unscale, clip and skip on their own.

use gradclip::{GradSet, wgpu};

use crate::kernels::Task;
use crate::model::{Tensor, parameters};
use crate::network::Network;
use crate::rule::{Hyper, Rule};

/// The optimizer's state for one layer, zero at the start. Every tensor uses its own part.
pub struct Moments(Vec<[wgpu::Buffer; 2]>);

impl Moments {
    pub fn new(network: &Network) -> Self {
        let layer = |i| [(); 2].map(|()| network.kernels.words(parameters(i)));
        Self((0..network.layers.len()).map(layer).collect())
    }
}

/// The dispatches of one optimizer step over `tensors`, under the verdict of `set`.
pub fn tasks(
    rule: Rule,
    network: &Network,
    moments: &Moments,
    set: &GradSet,
    tensors: &[Tensor],
) -> Vec<Task> {
    let kernels = &network.kernels;
    let verdict = || wgpu::BindingResource::Buffer(set.verdict());
    let mut tasks = Vec::new();
    for tensor in tensors {
        let words = tensor.len / 2;
        let hyper = Hyper { first: tensor.first as u32 / 2, words: words as u32, ..rule.hyper() };
        let hyper = kernels.buffer(&[hyper]);
        let layer = &network.layers[tensor.layer];
        let [first_moment, second_moment] = &moments.0[tensor.layer];
        let mut resources = vec![hyper.as_entire_binding(), verdict()];
        let buffers = [&layer.gradients, &layer.master, &layer.weights, first_moment];
        resources.extend(buffers.map(|b| b.as_entire_binding()));
        let pipeline = match rule {
            Rule::Sgd => &kernels.sgd,
            Rule::AdamW => {
                resources.push(second_moment.as_entire_binding());
                &kernels.adamw
            }
        };
        tasks.push(kernels.task(pipeline, words, &resources));
    }
    tasks
}
