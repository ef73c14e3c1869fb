// A dense layer. Its f16 weights lie as [outputs][inputs], then the bias; its gradients lie the same way. All widths are
// even, so that a word never holds parts of two rows.
struct Layer {
    inputs: u32,
    outputs: u32,
    rows: u32,
    relu: u32,
}
