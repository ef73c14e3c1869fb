//! The network: its shapes, tensors and first weights.

use crate::data::{CLASSES, Lcg, PIXELS};

/// Inputs and outputs of each layer.
pub const LAYERS: [(usize, usize); 3] = [(PIXELS, 128), (128, 64), (64, CLASSES)];
/// Rows of a microbatch.
pub const ROWS: usize = 64;
/// Microbatches of a step.
pub const MICROBATCHES: usize = 2;
/// The two optimizers: which layers each trains.
pub const OPTIMIZERS: [(&str, &[usize]); 2] = [("layer 1", &[0]), ("layers 2 and 3", &[1, 2])];

/// A parameter tensor: `len` elements from element `first` of its layer.
#[derive(Clone)]
pub struct Tensor {
    pub name: String,
    pub layer: usize,
    pub first: usize,
    pub len: usize,
}

/// Weights and bias of a layer.
pub fn tensors(layer: usize) -> [Tensor; 2] {
    let (inputs, outputs) = LAYERS[layer];
    let tensor = |name, first, len| Tensor { name: format!("layer{}.{name}", layer + 1), layer, first, len };
    [tensor("weight", 0, inputs * outputs), tensor("bias", inputs * outputs, outputs)]
}

/// Parameters of a layer.
pub fn parameters(layer: usize) -> usize {
    let (inputs, outputs) = LAYERS[layer];
    (inputs + 1) * outputs
}

/// He's uniform initialisation; biases are 0. For each layer weights as [outputs][inputs], then the bias.
pub fn initial(seed: u64) -> Vec<Vec<f32>> {
    let mut lcg = Lcg::new(seed ^ 0x1217);
    LAYERS
        .iter()
        .map(|&(inputs, outputs)| {
            let bound = (6.0 / inputs as f64).sqrt();
            let mut layer: Vec<f32> =
                (0..inputs * outputs).map(|_| (bound * lcg.symmetric()) as f32).collect();
            layer.resize((inputs + 1) * outputs, 0.0);
            layer
        })
        .collect()
}
