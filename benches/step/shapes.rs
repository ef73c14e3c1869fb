//! The gradients of real models as lists of tensor lengths.

/// The gradients of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub name: String,
    /// Elements of each tensor, in the order of the model.
    pub tensors: Vec<u64>,
}

impl Shape {
    pub fn new(name: impl Into<String>, tensors: Vec<u64>) -> Self {
        Self { name: name.into(), tensors }
    }

    pub fn elements(&self) -> u64 {
        self.tensors.iter().sum()
    }

    /// Every tensor a `factor`th as long, though never empty.
    pub fn scaled_down(&self, factor: u64) -> Self {
        Self::new(&self.name, self.tensors.iter().map(|n| n.div_ceil(factor)).collect())
    }
}

/// The models of the table.
pub fn models() -> Vec<Shape> {
    vec![
        Shape::new("gpt2-small", gpt2_small()),
        Shape::new("resnet-50", resnet_50()),
        Shape::new("llama-3-8b-layer", llama_3_8b_layer()),
        Shape::new("1000-of-1000", vec![1000; 1000]),
        Shape::new("one-of-256mi", vec![256 << 20]),
    ]
}

/// Radford et al. 2019: 12 layers of width 768, 1024 positions, 50257 tokens, the output tied to the token embedding.
fn gpt2_small() -> Vec<u64> {
    const WIDTH: u64 = 768;
    let layer = [
        // ln_1, c_attn, c_proj
        WIDTH,
        WIDTH,
        WIDTH * 3 * WIDTH,
        3 * WIDTH,
        WIDTH * WIDTH,
        WIDTH,
        // ln_2, c_fc, c_proj
        WIDTH,
        WIDTH,
        WIDTH * 4 * WIDTH,
        4 * WIDTH,
        4 * WIDTH * WIDTH,
        WIDTH,
    ];
    let mut tensors = vec![50_257 * WIDTH, 1024 * WIDTH];
    (0..12).for_each(|_| tensors.extend(layer));
    tensors.extend([WIDTH, WIDTH]);
    tensors
}

/// He et al. 2015, as torchvision lays it out: bottlenecks of 3, 4, 6 and 3, every convolution with a batch norm.
fn resnet_50() -> Vec<u64> {
    let mut tensors = Vec::new();
    let mut convolution = |inputs: u64, outputs: u64, size: u64| {
        tensors.extend([inputs * outputs * size * size, outputs, outputs]);
    };
    convolution(3, 64, 7);
    let mut inputs = 64;
    for (blocks, width) in [(3, 64), (4, 128), (6, 256), (3, 512)] {
        for block in 0..blocks {
            convolution(inputs, width, 1);
            convolution(width, width, 3);
            convolution(width, 4 * width, 1);
            if block == 0 {
                convolution(inputs, 4 * width, 1);
            }
            inputs = 4 * width;
        }
    }
    tensors.extend([1000 * inputs, 1000]);
    tensors
}

/// One of the 32 layers of Llama 3 8B (2024): width 4096, 8 key and value heads of 128, feed-forward 14336.
fn llama_3_8b_layer() -> Vec<u64> {
    const WIDTH: u64 = 4096;
    const KEYS: u64 = 1024;
    const FEED: u64 = 14_336;
    vec![
        WIDTH * WIDTH,
        WIDTH * KEYS,
        WIDTH * KEYS,
        WIDTH * WIDTH,
        WIDTH * FEED,
        WIDTH * FEED,
        FEED * WIDTH,
        WIDTH,
        WIDTH,
    ]
}
