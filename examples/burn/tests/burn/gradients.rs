//! Which gradients are found, where, and what is copied.

use burn::module::{Module, Param};
use burn::nn::conv::Conv2dConfig;
use burn::nn::{LinearConfig, PaddingConfig2d};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Distribution, Tensor, TensorData};
use gradclip::reference::{TensorBits, step};
use gradclip::{ClipNorm, Format, LossScale};
use gradclip_burn_example::{Clipper, grad_slices};

use crate::digits::model::Net;
use crate::digits::oracle;
use crate::digits::training::batches;
use crate::gpu;

/// Below every norm here, so that each clip writes.
fn limit() -> ClipNorm {
    ClipNorm::new(0.01).unwrap()
}

/// Clips, compares all gradients with the reference on every bit, and returns what was copied.
fn clip<M: Module>(model: &M, grads: &mut GradientsParams) -> Vec<String> {
    let mut clipper = Clipper::new(&gpu().context);
    let mut expected = oracle::gradients(model, grads);
    let outcome = oracle::reference(&mut expected, LossScale::ONE, limit());
    clipper.clip(model, grads, LossScale::ONE, limit()).unwrap();
    let report = clipper.report().unwrap();
    assert!(report.clipped, "{report}");
    assert_eq!(report.total_norm.map(f64::to_bits), Some(outcome.total_norm.to_f64().to_bits()));
    assert_eq!(oracle::gradients(model, grads), expected);
    clipper.copied().to_vec()
}

fn backward<M: Module>(model: &M, loss: Tensor<1>) -> GradientsParams {
    GradientsParams::from_grads(loss.backward(), model)
}

fn vector(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::from(values), device)
}

#[test]
fn names_are_paths_and_gradients_lie_between_other_tensors() {
    let net = Net::seeded(&gpu().device, 3);
    let batch = &batches(1, &gpu().device).unwrap()[0];
    let mut grads = backward(&net, net.loss(batch.images.clone(), batch.labels.clone()));
    let parameters = oracle::parameters(&net);

    let slices = grad_slices(&net, &mut grads).unwrap();
    let found: Vec<_> = slices.iter().map(|(name, place)| (name, place.len, place.format)).collect();
    let f32s = |name, len| (name, len, Format::F32);
    let expected = [
        f32s("conv1.weight", 72),
        f32s("conv1.bias", 8),
        f32s("conv2.weight", 1152),
        f32s("conv2.bias", 16),
        f32s("hidden.weight", 8192),
        f32s("hidden.bias", 32),
        f32s("output.weight", 320),
        f32s("output.bias", 10),
    ];
    assert_eq!(found, expected);
    // Burn's default memory configuration: pages with many tensors.
    assert!(slices.iter().any(|(_, place)| place.offset > 0));
    let first = slices.iter().next().unwrap().1.buffer;
    assert!(slices.iter().skip(1).any(|(_, place)| place.buffer == first));
    drop(slices);

    assert_eq!(clip(&net, &mut grads), [""; 0]);
    assert_eq!(oracle::parameters(&net), parameters, "the clip wrote beside the gradients");
    assert_eq!(grads.len(), expected.len());
}

#[derive(Module, Debug)]
struct Two {
    a: Param<Tensor<1>>,
    b: Param<Tensor<1>>,
}

impl Two {
    fn new() -> Self {
        let parameter = |values: &[f32]| Param::from_tensor(vector(values, &gpu().device));
        Self { a: parameter(&[1.0, 2.0, 3.0]), b: parameter(&[4.0, 5.0, 6.0]) }
    }
}

fn weights() -> Tensor<1> {
    vector(&[3.0, 4.0, 12.0], &gpu().device)
}

#[test]
fn a_parameter_without_a_gradient_is_left_out() {
    let two = Two::new();
    let mut grads = backward(&two, (two.b.val() * weights()).sum());
    let slices = grad_slices(&two, &mut grads).unwrap();
    assert_eq!(slices.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
    drop(slices);
    assert_eq!(clip(&two, &mut grads), [""; 0]);
}

#[test]
fn a_shared_parameter_is_taken_once() {
    let mut two = Two::new();
    two.b = two.a.clone();
    let mut grads = backward(&two, (two.a.val() * two.b.val() * weights()).sum());
    let slices = grad_slices(&two, &mut grads).unwrap();
    assert_eq!(slices.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a"]);
}

/// The backward pass of an addition gives both sides one tensor.
#[test]
fn of_two_gradients_in_one_memory_one_is_copied() {
    let two = Two::new();
    let mut grads = backward(&two, ((two.a.val() + two.b.val()) * weights()).sum());
    assert_eq!(clip(&two, &mut grads), ["a"]);
    // Each has memory of its own now.
    assert_eq!(clip_again(&two, &mut grads), [""; 0]);
}

fn clip_again<M: Module>(model: &M, grads: &mut GradientsParams) -> Vec<String> {
    grad_slices(model, grads).unwrap().copied().to_vec()
}

#[test]
fn a_gradient_that_someone_else_holds_is_copied() {
    let two = Two::new();
    let mut grads = backward(&two, (two.a.val() * two.b.val() * weights()).sum());
    let held = grads.get::<1>(two.b.id).unwrap();
    let reshaped = grads.get::<1>(two.a.id).unwrap().reshape([3, 1]);
    let before = (oracle::bits(held.clone()), oracle::bits(reshaped.clone()));
    assert_eq!(clip(&two, &mut grads), ["a", "b"]);
    assert_eq!((oracle::bits(held), oracle::bits(reshaped)), before);
}

#[test]
fn a_gradient_that_repeats_elements_is_copied() {
    let linear = LinearConfig::new(5, 7).with_bias(false).init(&gpu().device);
    let mut grads = GradientsParams::new();
    let row = vector(&[1.0, -2.0, 3.0, 4.0, 5.0, 6.0, 7.0], &gpu().device.clone().inner());
    grads.register(linear.weight.id, row.reshape([1, 7]).expand([5, 7]));
    assert_eq!(clip(&linear, &mut grads), ["weight"]);
}

/// Burn makes a slice a view where what it leaves out is a multiple of the device's alignment, at most 256 bytes.
#[test]
fn a_gradient_with_gaps_is_copied() {
    let linear = LinearConfig::new(5, 7).with_bias(false).init(&gpu().device);
    let mut grads = GradientsParams::new();
    let values: Vec<f32> = (0..5 * 71).map(|i| i as f32 - 10.0).collect();
    let wide = Tensor::<2>::from_data(TensorData::new(values, [5, 71]), &gpu().device.clone().inner());
    grads.register(linear.weight.id, wide.slice([0..5, 0..7]));
    assert_eq!(clip(&linear, &mut grads), ["weight"]);
}

/// 8 pixels, 2 of padding and a kernel of 3 leave one over at a stride of 2, and Burn a weight gradient with gaps, on the
/// devices for which it chooses its plainest algorithm.
#[test]
fn a_convolution_with_a_stride() {
    let config = Conv2dConfig::new([8, 16], [3, 3]).with_stride([2, 2]);
    let conv = config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(&gpu().device);
    let images = Tensor::<4>::random([64, 8, 8, 8], Distribution::Default, &gpu().device);
    let mut grads = backward(&conv, conv.forward(images).square().sum());
    let copied = clip(&conv, &mut grads);
    assert!(copied.is_empty() || copied == ["weight"], "{copied:?}");
}

#[test]
fn a_permuted_gradient_is_taken_as_it_lies() {
    let linear = LinearConfig::new(5, 7).with_bias(false).init(&gpu().device);
    let mut grads = GradientsParams::new();
    let values: Vec<f32> = (0..35).map(|i| i as f32 - 10.0).collect();
    let turned = Tensor::<2>::from_data(TensorData::new(values, [7, 5]), &gpu().device.clone().inner());
    grads.register(linear.weight.id, turned.transpose());
    assert_eq!(clip(&linear, &mut grads), [""; 0]);
}

/// An odd number of 16-bit elements, whose last word is not theirs alone.
#[test]
fn f16_and_bf16() {
    for (dtype, format) in [(DType::F16, Format::F16), (DType::BF16, Format::Bf16)] {
        let two = Two::new();
        let mut grads = GradientsParams::new();
        let data = TensorData::from([3.0f32, -4.0, 12.0]).convert_dtype(dtype);
        let mut expected = data.as_bytes().to_vec();
        let inner = gpu().device.clone().inner();
        grads.register(two.a.id, Tensor::<1>::from_data(data, (&inner, dtype)));
        let mut tensors = [TensorBits::new(format, &mut expected)];
        let outcome = step(&mut tensors, LossScale::ONE, Some(limit()));

        let mut clipper = Clipper::new(&gpu().context);
        clipper.clip(&two, &mut grads, LossScale::ONE, limit()).unwrap();
        assert_eq!(clipper.report().unwrap().total_norm, Some(outcome.total_norm.to_f64()));
        assert_eq!(outcome.total_norm.to_f64(), 13.0);
        let got = grads.get::<1>(two.a.id).unwrap().into_data();
        assert_eq!(got.as_bytes(), expected, "{dtype:?}");
    }
}

/// Burn queues the work of each thread by itself.
#[test]
fn gradients_of_another_thread() {
    let two = Two::new();
    let threads = two.clone();
    let mut grads =
        std::thread::spawn(move || backward(&threads, (threads.a.val() * threads.b.val() * weights()).sum()))
            .join()
            .unwrap();
    // Before anything reads them: reading would flush the other thread's queue.
    let mut clipper = Clipper::new(&gpu().context);
    clipper.clip(&two, &mut grads, LossScale::ONE, limit()).unwrap();
    assert_eq!(clipper.report().unwrap().total_norm, {
        let squares = [3.0 * 4.0, 4.0 * 5.0, 12.0 * 6.0, 3.0, 4.0 * 2.0, 12.0 * 3.0f64].map(|g| g * g);
        Some(f64::from(squares.iter().sum::<f64>().sqrt() as f32))
    });
}

#[test]
fn another_list_of_gradients_and_a_loss_scale() {
    let two = Two::new();
    let mut clipper = Clipper::new(&gpu().context);
    for (loss, norm) in [
        ((two.a.val() * weights()).sum(), 13.0),
        ((two.b.val() * weights()).sum(), 13.0),
        ((two.a.val() * weights()).sum() + (two.b.val() * weights() * 2.0).sum(), 13.0 * 5f64.sqrt()),
    ] {
        let mut grads = backward(&two, loss * 8.0);
        clipper.clip(&two, &mut grads, LossScale::new(8.0).unwrap(), limit()).unwrap();
        let report = clipper.report().unwrap();
        assert!((report.total_norm.unwrap() / norm - 1.0).abs() < 1e-7, "{report}");
    }
}

#[test]
fn no_gradients_at_all() {
    let mut clipper = Clipper::new(&gpu().context);
    clipper.clip(&Two::new(), &mut GradientsParams::new(), LossScale::ONE, limit()).unwrap();
    assert_eq!(clipper.report().unwrap().total_norm, Some(0.0));
}
