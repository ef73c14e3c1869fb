//! Forward and backward on the GPU, with activations, weights and gradients in f16.

use gradclip::{Context, GradScaler, wgpu};

use crate::data::{Digits, PIXELS, Split};
use crate::kernels::{Kernels, Task, pack, record};
use crate::model::{LAYERS, MICROBATCHES, ROWS, parameters};

/// Words in front of the row numbers in the batch buffer: the slots of this step in the two curves.
const HEADER: usize = 2;

/// The parameters of a layer, and their gradients.
pub struct Layer {
    /// f32: what the optimizer changes.
    pub master: wgpu::Buffer,
    /// f16: what forward and backward read.
    pub weights: wgpu::Buffer,
    /// f16, times the loss scale.
    pub gradients: wgpu::Buffer,
}

pub struct Network {
    pub kernels: Kernels,
    pub layers: Vec<Layer>,
    queue: wgpu::Queue,
    batch: wgpu::Buffer,
    microbatches: Vec<Vec<Task>>,
    training_curve: Task,
    evaluation: Vec<Task>,
    /// Mean loss and accuracy of each training batch, and of each evaluation.
    pub curves: [wgpu::Buffer; 2],
}

/// Buffers for the rows that go through the network together.
struct Rows {
    rows: usize,
    targets: wgpu::Buffer,
    /// The images, then the outputs of each layer.
    activations: Vec<wgpu::Buffer>,
    /// The gradient of each layer's outputs.
    deltas: Vec<wgpu::Buffer>,
}

impl Network {
    pub fn new(
        gpu: &Context,
        scaler: &GradScaler,
        split: &Split,
        initial: &[Vec<f32>],
        steps: usize,
        evaluations: usize,
    ) -> Self {
        let kernels = Kernels::new(gpu.device());
        let layers: Vec<Layer> = initial
            .iter()
            .map(|parameters| Layer {
                master: kernels.buffer(parameters),
                weights: kernels.buffer(&pack(parameters)),
                gradients: kernels.words(parameters.len() / 2),
            })
            .collect();
        let batch = kernels.words(HEADER + MICROBATCHES * ROWS);
        let curves = [steps, evaluations].map(|slots| kernels.words(2 * slots));

        let images = kernels.buffer(&pack(&split.train.pixels));
        let labels = kernels.buffer(&split.train.labels);
        let scores = kernels.words(2 * MICROBATCHES * ROWS);
        let rows = Rows::new(&kernels, ROWS, None);
        let microbatches = (0..MICROBATCHES)
            .map(|microbatch| {
                let first = microbatch * ROWS;
                let shape = kernels.buffer(&[PIXELS / 2, ROWS, HEADER + first, 0].map(|n| n as u32));
                let buffers = [&shape, &batch, &images, &labels, &rows.activations[0], &rows.targets];
                let gather =
                    kernels.task(&kernels.gather, ROWS * PIXELS / 2, &buffers.map(|b| b.as_entire_binding()));
                let mut tasks = vec![gather];
                tasks.extend(rows.forward(&kernels, &layers));
                tasks.push(rows.loss(&kernels, scaler, &scores, first, MICROBATCHES * ROWS));
                tasks.extend(rows.backward(&kernels, &layers));
                tasks
            })
            .collect();
        let training_curve = curve(&kernels, MICROBATCHES * ROWS, 0, [&batch, &scores, &curves[0]]);

        let test = Rows::new(&kernels, split.test.len(), Some(&split.test));
        let scores = kernels.words(2 * test.rows);
        let mut evaluation = test.forward(&kernels, &layers);
        evaluation.push(test.loss(&kernels, scaler, &scores, 0, test.rows));
        evaluation.push(curve(&kernels, test.rows, 1, [&batch, &scores, &curves[1]]));

        let queue = gpu.queue().clone();
        Self { kernels, layers, queue, batch, microbatches, training_curve, evaluation, curves }
    }

    /// Chooses the rows of the next step. They reach the GPU with the next submission.
    pub fn load_batch(&self, step: usize, evaluation: usize, rows: &[u32]) {
        let words: Vec<u32> =
            [step as u32, evaluation as u32].into_iter().chain(rows.iter().copied()).collect();
        self.queue.write_buffer(&self.batch, 0, bytemuck::cast_slice(&words));
    }

    pub fn zero_gradients(&self, encoder: &mut wgpu::CommandEncoder) {
        self.layers.iter().for_each(|layer| encoder.clear_buffer(&layer.gradients, 0, None));
    }

    /// Forward and backward: adds the gradients of the scaled loss to those that are there.
    pub fn record_microbatch(&self, encoder: &mut wgpu::CommandEncoder, microbatch: usize) {
        record(encoder, &self.microbatches[microbatch]);
    }

    pub fn record_training_curve(&self, encoder: &mut wgpu::CommandEncoder) {
        record(encoder, [&self.training_curve]);
    }

    pub fn record_evaluation(&self, encoder: &mut wgpu::CommandEncoder) {
        record(encoder, &self.evaluation);
    }
}

impl Rows {
    fn new(kernels: &Kernels, rows: usize, digits: Option<&Digits>) -> Self {
        let images =
            digits.map_or_else(|| kernels.words(rows * PIXELS / 2), |d| kernels.buffer(&pack(&d.pixels)));
        let targets = digits.map_or_else(|| kernels.words(rows), |d| kernels.buffer(&d.labels));
        let outputs = || LAYERS.iter().map(|&(_, outputs)| kernels.words(rows * outputs / 2));
        Self {
            rows,
            targets,
            activations: std::iter::once(images).chain(outputs()).collect(),
            deltas: outputs().collect(),
        }
    }

    /// `struct Layer` of the kernels.
    fn shape(&self, kernels: &Kernels, layer: usize) -> wgpu::Buffer {
        let (inputs, outputs) = LAYERS[layer];
        let relu = usize::from(layer + 1 < LAYERS.len());
        kernels.buffer(&[inputs, outputs, self.rows, relu].map(|n| n as u32))
    }

    fn forward(&self, kernels: &Kernels, layers: &[Layer]) -> Vec<Task> {
        (0..LAYERS.len())
            .map(|i| {
                let shape = self.shape(kernels, i);
                let buffers = [&shape, &layers[i].weights, &self.activations[i], &self.activations[i + 1]];
                let threads = self.rows * LAYERS[i].1 / 2;
                kernels.task(&kernels.forward, threads, &buffers.map(|b| b.as_entire_binding()))
            })
            .collect()
    }

    fn loss(
        &self,
        kernels: &Kernels,
        scaler: &GradScaler,
        scores: &wgpu::Buffer,
        first: usize,
        mean_over: usize,
    ) -> Task {
        let last = LAYERS.len() - 1;
        let shape = kernels.buffer(&[LAYERS[last].1, self.rows, first, mean_over].map(|n| n as u32));
        let resources = [
            shape.as_entire_binding(),
            wgpu::BindingResource::Buffer(scaler.scale_buffer()),
            self.activations[last + 1].as_entire_binding(),
            self.targets.as_entire_binding(),
            self.deltas[last].as_entire_binding(),
            scores.as_entire_binding(),
        ];
        kernels.task(&kernels.loss, self.rows, &resources)
    }

    fn backward(&self, kernels: &Kernels, layers: &[Layer]) -> Vec<Task> {
        let mut tasks = Vec::new();
        for i in (0..LAYERS.len()).rev() {
            let shape = self.shape(kernels, i);
            let (inputs, deltas) = (&self.activations[i], &self.deltas[i]);
            let buffers = [&shape, inputs, deltas, &layers[i].gradients].map(|b| b.as_entire_binding());
            tasks.push(kernels.task(&kernels.backward_weights, parameters(i) / 2, &buffers));
            if i > 0 {
                let buffers = [&shape, &layers[i].weights, inputs, deltas, &self.deltas[i - 1]];
                let threads = self.rows * LAYERS[i].0 / 2;
                let buffers = buffers.map(|b| b.as_entire_binding());
                tasks.push(kernels.task(&kernels.backward_inputs, threads, &buffers));
            }
        }
        tasks
    }
}

/// `buffers`: batch, scores, curve.
fn curve(kernels: &Kernels, rows: usize, slot: u32, buffers: [&wgpu::Buffer; 3]) -> Task {
    let shape = kernels.buffer(&[rows as u32, slot, 0, 0]);
    let [batch, scores, curve] = buffers;
    kernels.task(&kernels.curve, 1, &[&shape, batch, scores, curve].map(|b| b.as_entire_binding()))
}
