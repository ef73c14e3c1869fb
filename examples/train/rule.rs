//! The two rules, and their numbers.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    Sgd,
    AdamW,
}

/// The twin of `struct Hyper` in `hyper.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Hyper {
    pub first: u32,
    pub words: u32,
    pub rate: f32,
    pub decay: f32,
    /// SGD's momentum.
    pub beta1: f32,
    pub beta2: f32,
    pub epsilon: f32,
    pub reserved: u32,
}

impl Rule {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sgd => "SGD",
            Self::AdamW => "AdamW",
        }
    }

    pub fn hyper(self) -> Hyper {
        let (rate, decay, beta1) = match self {
            Self::Sgd => (0.1, 0.0003, 0.9),
            Self::AdamW => (0.002, 0.01, 0.9),
        };
        Hyper { first: 0, words: 0, rate, decay, beta1, beta2: 0.999, epsilon: 1e-8, reserved: 0 }
    }
}
