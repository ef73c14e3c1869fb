//! The network.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Initializer, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};

use super::data::Lcg;

/// Two convolutions and two linear layers.
#[derive(Module, Debug)]
pub struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    hidden: Linear,
    output: Linear,
}

impl Net {
    /// With the same weights on every device.
    pub fn seeded(device: &Device, seed: u64) -> Self {
        let zeros = Initializer::Zeros;
        let conv = |channels| {
            let same = PaddingConfig2d::Explicit(1, 1, 1, 1);
            let config = Conv2dConfig::new(channels, [3, 3]).with_padding(same);
            config.with_initializer(zeros.clone()).init(device)
        };
        let linear = |from, to| LinearConfig::new(from, to).with_initializer(zeros.clone()).init(device);
        let net = Self {
            conv1: conv([1, 8]),
            conv2: conv([8, 16]),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            hidden: linear(16 * 4 * 4, 32),
            output: linear(32, 10),
        };
        net.map(&mut Deal(Lcg::new(seed)))
    }

    /// `images`: batch, 1, 8, 8. Gives batch, 10.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.pool.forward(relu(self.conv2.forward(relu(self.conv1.forward(images)))));
        self.output.forward(relu(self.hidden.forward(x.flatten(1, 3))))
    }

    /// The mean cross entropy.
    pub fn loss(&self, images: Tensor<4>, labels: Tensor<1, Int>) -> Tensor<1> {
        let device = images.device();
        CrossEntropyLossConfig::new().init(&device).forward(self.forward(images), labels)
    }
}

/// Deals out the weights: uniform, with He's variance of 2 / inputs. Biases stay 0.
struct Deal(Lcg);

impl ModuleMapper for Deal {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let dims = param.val().dims();
        let inputs: usize = match dims.as_slice() {
            [inputs, _] => *inputs,
            [_, rest @ ..] => rest.iter().product(),
            [] => 1,
        };
        let bound = if D > 1 { (6.0 / inputs as f64).sqrt() } else { 0.0 };
        param.map(|old| {
            let count = dims.iter().product();
            let values = (0..count).map(|_| (self.0.symmetric() * bound) as f32).collect::<Vec<_>>();
            Tensor::from_data(TensorData::new(values, dims), &old.device()).require_grad()
        })
    }
}
