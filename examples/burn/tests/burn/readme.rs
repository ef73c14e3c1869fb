//! The step that README.md shows.

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;
use gradclip::{ClipNorm, LossScale};
use gradclip_burn_example::{ClipError, Clipper};

/// `clipper`: `Clipper::new(&Context::new(&device, &queue)?)`, of the device and queue that Burn was set up with.
fn step<M: Module>(
    clipper: &mut Clipper,
    optimizer: &mut ModuleOptimizer,
    model: M,
    loss: &Tensor<1>,
) -> Result<M, ClipError> {
    let mut grads = GradientsParams::from_grads(loss.backward(), &model);
    clipper.clip(&model, &mut grads, LossScale::ONE, ClipNorm::new(1.0)?)?; // submits, and waits for nothing
    if clipper.report()?.skipped {
        return Ok(model); // NaN or infinity; asking waits for the GPU
    }
    Ok(optimizer.step(0.05, model, grads))
}

#[test]
fn the_readme_shows_this_step_and_it_trains() {
    let readme = include_str!("../../../../README.md");
    let (_, code) = include_str!("readme.rs").split_once("\n\n").unwrap();
    let (code, _) = code.split_once("\n#[test]").unwrap();
    assert!(readme.contains(code), "README.md shows other code");

    let gpu = crate::gpu();
    let mut net = crate::digits::model::Net::seeded(&gpu.device, 5);
    let batch = &crate::digits::training::batches(1, &gpu.device).unwrap()[0];
    let loss = |net: &crate::digits::model::Net| net.loss(batch.images.clone(), batch.labels.clone());
    let before = loss(&net).into_scalar::<f32>();
    let mut clipper = Clipper::new(&gpu.context);
    let mut optimizer = burn::optim::SgdConfig::new().init();
    for _ in 0..3 {
        let loss = loss(&net);
        net = step(&mut clipper, &mut optimizer, net, &loss).unwrap();
    }
    assert!(loss(&net).into_scalar::<f32>() < before);
}
