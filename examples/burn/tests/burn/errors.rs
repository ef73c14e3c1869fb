//! What is refused, by the name of the parameter, with every gradient still there.

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};
use gradclip::{ClipNorm, Error, LossScale};
use gradclip_burn_example::{ClipError, Clipper, GradSlicesError, grad_slices};

use crate::{another_gpu, gpu};

#[derive(Module, Debug)]
struct Two {
    a: Param<Tensor<1>>,
    b: Param<Tensor<1>>,
}

fn two() -> (Two, GradientsParams) {
    let tensor = || Tensor::<1>::from_data(TensorData::from([1.0f32, 2.0]), &gpu().device);
    let two = Two { a: Param::from_tensor(tensor()), b: Param::from_tensor(tensor()) };
    let mut grads = GradientsParams::new();
    grads.register(two.a.id, tensor().inner() * 2.0);
    (two, grads)
}

/// With this gradient of `b`.
fn refused(b: Tensor<1>) -> GradSlicesError {
    let (two, mut grads) = two();
    grads.register(two.b.id, b);
    let error = grad_slices(&two, &mut grads).err().expect("it was accepted");
    assert_eq!(grads.len(), 2);
    assert!(error.to_string().contains("\"b\""), "{error}");
    error
}

#[test]
fn a_gradient_with_its_graph() {
    let error = refused(Tensor::from_data(TensorData::from([1.0f32]), &gpu().device));
    assert!(matches!(&error, GradSlicesError::Backend { parameter, .. } if parameter == "b"), "{error}");
    assert!(error.to_string().contains("autodiff"), "{error}");
}

#[test]
fn another_device() {
    let other = another_gpu();
    let inner = other.device.clone().inner();
    let error = refused(Tensor::from_data(TensorData::from([1.0f32]), &inner));
    assert!(matches!(error, GradSlicesError::Device { .. }), "{error}");
}

#[test]
fn another_type() {
    let inner = gpu().device.clone().inner();
    let error = refused(Tensor::from_data(TensorData::from([1.0f64]), (&inner, DType::F64)));
    let dtype = DType::F64;
    assert_eq!(error, GradSlicesError::Dtype { parameter: "b".into(), dtype });
}

/// gradclip's context is of another device than Burn's gradients.
#[test]
fn a_context_of_another_device() {
    let (two, mut grads) = two();
    let mut clipper = Clipper::new(&another_gpu().context);
    let limit = ClipNorm::new(1.0).unwrap();
    let error = clipper.clip(&two, &mut grads, LossScale::ONE, limit).unwrap_err();
    assert!(matches!(error, ClipError::Clip(Error::Wgpu { .. })), "{error}");
    assert!(matches!(clipper.report(), Err(ClipError::NoStep)));
    assert_eq!(grads.len(), 1);
}
