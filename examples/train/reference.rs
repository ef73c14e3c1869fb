//! The same network, loss, clipping and optimizers in f64, on the CPU.

use crate::data::Digits;
use crate::model::{LAYERS, OPTIMIZERS};
use crate::rule::Rule;

/// For each layer weights as [outputs][inputs], then the bias.
pub type Parameters = Vec<Vec<f64>>;

/// Mean loss over `rows` of `digits`, and its gradient.
pub fn backward(parameters: &Parameters, digits: &Digits, rows: &[u32]) -> (f64, Parameters) {
    let mut gradients: Parameters = parameters.iter().map(|layer| vec![0.0; layer.len()]).collect();
    let mut loss = 0.0;
    for &row in rows {
        let image = digits.image(row as usize).iter().map(|&p| f64::from(p)).collect();
        let activations = forward(parameters, image);
        let logits = &activations[LAYERS.len()];
        let label = digits.labels[row as usize] as usize;
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = logits.iter().map(|l| (l - largest).exp()).sum();
        loss += sum.ln() + largest - logits[label];
        let probability = |(i, l): (usize, &f64)| (l - largest).exp() / sum - f64::from(u8::from(i == label));
        let mut deltas: Vec<f64> = logits.iter().enumerate().map(probability).collect();
        for (i, &(inputs, outputs)) in LAYERS.iter().enumerate().rev() {
            let x = &activations[i];
            let mut input_deltas = vec![0.0; inputs];
            for (o, delta) in deltas.iter().enumerate() {
                for k in 0..inputs {
                    gradients[i][o * inputs + k] += delta * x[k];
                    input_deltas[k] += delta * parameters[i][o * inputs + k];
                }
                gradients[i][outputs * inputs + o] += delta;
            }
            input_deltas.iter_mut().zip(x).filter(|(_, x)| **x <= 0.0).for_each(|(delta, _)| *delta = 0.0);
            deltas = input_deltas;
        }
    }
    let count = rows.len() as f64;
    gradients.iter_mut().flatten().for_each(|g| *g /= count);
    (loss / count, gradients)
}

/// The image, then the outputs of each layer.
fn forward(parameters: &Parameters, image: Vec<f64>) -> Vec<Vec<f64>> {
    let mut activations = vec![image];
    for (i, &(inputs, outputs)) in LAYERS.iter().enumerate() {
        let (weights, bias) = parameters[i].split_at(inputs * outputs);
        let x = &activations[i];
        let output = |o: usize| {
            let sum: f64 = weights[o * inputs..(o + 1) * inputs].iter().zip(x).map(|(w, x)| w * x).sum();
            let y = sum + bias[o];
            if i + 1 < LAYERS.len() { y.max(0.0) } else { y }
        };
        activations.push((0..outputs).map(output).collect());
    }
    activations
}

/// Both optimizers, and what they remember.
pub struct Optimizers {
    rule: Rule,
    moments: [Parameters; 2],
    steps: i32,
}

impl Optimizers {
    pub fn new(rule: Rule, parameters: &Parameters) -> Self {
        let zeros: Parameters = parameters.iter().map(|layer| vec![0.0; layer.len()]).collect();
        Self { rule, moments: [zeros.clone(), zeros], steps: 0 }
    }

    /// Clips and steps. Returns the norm of each optimizer's gradients before clipping.
    pub fn step(&mut self, parameters: &mut Parameters, gradients: &Parameters, max_norm: f64) -> Vec<f64> {
        self.steps += 1;
        let mut norms = Vec::new();
        for (_, layers) in OPTIMIZERS {
            let squares = layers.iter().flat_map(|&layer| &gradients[layer]).map(|g| g * g);
            let norm = squares.sum::<f64>().sqrt();
            let coefficient = if norm <= max_norm { 1.0 } else { max_norm / (norm + 1e-6) };
            for &layer in layers {
                for (i, gradient) in gradients[layer].iter().enumerate() {
                    self.update(&mut parameters[layer][i], (layer, i), gradient * coefficient);
                }
            }
            norms.push(norm);
        }
        norms
    }

    fn update(&mut self, weight: &mut f64, (layer, i): (usize, usize), gradient: f64) {
        let hyper = self.rule.hyper();
        let [rate, decay, beta1, beta2, epsilon] =
            [hyper.rate, hyper.decay, hyper.beta1, hyper.beta2, hyper.epsilon].map(f64::from);
        let [first, second] = &mut self.moments;
        let (first, second) = (&mut first[layer][i], &mut second[layer][i]);
        match self.rule {
            Rule::Sgd => {
                *first = beta1 * *first + gradient + decay * *weight;
                *weight -= rate * *first;
            }
            Rule::AdamW => {
                *first = beta1 * *first + (1.0 - beta1) * gradient;
                *second = beta2 * *second + (1.0 - beta2) * gradient * gradient;
                let unbiased = *first / (1.0 - beta1.powi(self.steps));
                let deviation = (*second / (1.0 - beta2.powi(self.steps))).sqrt() + epsilon;
                *weight -= rate * decay * *weight + rate * unbiased / deviation;
            }
        }
    }
}
