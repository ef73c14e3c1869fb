//! The same step on the CPU: read back, `gradclip::reference`, upload. And the bits of a module or its gradients.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use gradclip::reference::{Outcome, TensorBits, step};
use gradclip::{ClipNorm, Format, LossScale};

/// The words of each tensor, in the order in which Burn visits the parameters.
pub type Bits = Vec<Vec<u32>>;

/// Clips f32 gradients on the CPU and registers the results in their place.
pub fn clip<M: Module>(
    model: &M,
    grads: &mut GradientsParams,
    scale: LossScale,
    limit: ClipNorm,
) -> (Outcome, Bits) {
    let mut bits = gradients(model, grads);
    let outcome = reference(&mut bits, scale, limit);
    struct Upload<'a>(&'a mut GradientsParams, std::slice::Iter<'a, Vec<u32>>);
    impl ModuleVisitor for Upload<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let Some(old) = self.0.remove::<D>(param.id) else { return };
            if let Some(words) = self.1.next() {
                let values: Vec<f32> = words.iter().map(|&w| f32::from_bits(w)).collect();
                let data = TensorData::new(values, old.shape());
                self.0.register(param.id, Tensor::<D>::from_data(data, &old.device()));
            }
        }
    }
    model.visit(&mut Upload(grads, bits.iter()));
    (outcome, bits)
}

/// What a step makes of these gradients.
pub fn reference(bits: &mut Bits, scale: LossScale, limit: ClipNorm) -> Outcome {
    let mut bytes: Vec<Vec<u8>> =
        bits.iter().map(|words| words.iter().flat_map(|w| w.to_le_bytes()).collect()).collect();
    let mut tensors: Vec<TensorBits<'_>> =
        bytes.iter_mut().map(|bytes| TensorBits::new(Format::F32, bytes)).collect();
    let outcome = step(&mut tensors, scale, Some(limit));
    for (words, bytes) in bits.iter_mut().zip(&bytes) {
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        }
    }
    outcome
}

/// Reads f32 gradients back.
pub fn gradients<M: Module>(model: &M, grads: &GradientsParams) -> Bits {
    struct Read<'a>(&'a GradientsParams, Bits);
    impl ModuleVisitor for Read<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.extend(self.0.get::<D>(param.id).map(bits));
        }
    }
    let mut read = Read(grads, Vec::new());
    model.visit(&mut read);
    read.1
}

/// Reads f32 parameters back.
pub fn parameters<M: Module>(model: &M) -> Bits {
    struct Read(Bits);
    impl ModuleVisitor for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(bits(param.val()));
        }
    }
    let mut read = Read(Vec::new());
    model.visit(&mut read);
    read.0
}

/// Reads an f32 tensor back.
pub fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// The L2 norm of the difference.
pub fn distance(a: &Bits, b: &Bits) -> f64 {
    let value = |w: &u32| f64::from(f32::from_bits(*w));
    let squares = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (value(a) - value(b)).powi(2));
    squares.sum::<f64>().sqrt()
}
