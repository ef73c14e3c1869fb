// A tensor of the optimizer: `words` words of two elements, from word `first` of its layer's buffers.
struct Hyper {
    first: u32,
    words: u32,
    rate: f32,
    decay: f32,
    // SGD's momentum.
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    reserved: u32,
}
