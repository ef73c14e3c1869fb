//! The two rules: their kernels, and what they compute, in f64.

use gradclip::VERDICT_WGSL;

pub const RATE: f32 = 0.01;
pub const WEIGHT_DECAY: f32 = 0.1;
pub const BETA_1: f32 = 0.9;
pub const BETA_2: f32 = 0.99;
pub const EPSILON: f32 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    Sgd,
    AdamW,
}

impl Rule {
    pub fn wgsl(self) -> String {
        let rule = match self {
            Self::Sgd => include_str!("sgd.wgsl"),
            Self::AdamW => include_str!("adamw.wgsl"),
        };
        [VERDICT_WGSL, include_str!("optimizer.wgsl"), rule].concat()
    }
}

/// Parameters and moments of a rule.
pub struct Model {
    rule: Rule,
    pub parameters: Vec<f64>,
    moments: Vec<[f64; 2]>,
    steps: i32,
}

impl Model {
    pub fn new(rule: Rule, start: &[f32]) -> Self {
        let parameters = start.iter().map(|&p| p.into()).collect();
        Self { rule, parameters, moments: vec![[0.0; 2]; start.len()], steps: 0 }
    }

    pub fn step(&mut self, gradients: &[f32], factor: f64) {
        self.steps += 1;
        let [rate, decay, beta_1, beta_2, epsilon] =
            [RATE, WEIGHT_DECAY, BETA_1, BETA_2, EPSILON].map(f64::from);
        for ((p, m), g) in self.parameters.iter_mut().zip(&mut self.moments).zip(gradients) {
            let g = f64::from(*g) * factor;
            match self.rule {
                Rule::Sgd => {
                    m[0] = beta_1 * m[0] + g + decay * *p;
                    *p -= rate * m[0];
                }
                Rule::AdamW => {
                    m[0] = beta_1 * m[0] + (1.0 - beta_1) * g;
                    m[1] = beta_2 * m[1] + (1.0 - beta_2) * g * g;
                    let [first, second] =
                        [m[0] / (1.0 - beta_1.powi(self.steps)), m[1] / (1.0 - beta_2.powi(self.steps))];
                    *p -= rate * decay * *p;
                    *p -= rate * first / (second.sqrt() + epsilon);
                }
            }
        }
    }
}
