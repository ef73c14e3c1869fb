//! Twenty steps, and one with NaN.

use gradclip_burn_example::Clipper;

use crate::digits::comparison::{compare, ways};
use crate::digits::model::Net;
use crate::digits::oracle;
use crate::digits::training::{Batch, Clipping, MAX_NORM, Trainer, batches};
use crate::gpu;

#[test]
fn twenty_steps_equal_those_of_the_reference_on_every_bit() {
    let net = Net::seeded(&gpu().device, 7);
    let batches = batches(20, &gpu().device).unwrap();
    let steps = compare(gpu(), &net, &batches, |_, _| {}).unwrap();
    for (i, step) in steps.iter().enumerate() {
        assert!(step.report.total_norm.is_some(), "step {i}");
        assert_eq!(
            step.report.total_norm.map(f64::to_bits),
            step.reference_norm.map(f64::to_bits),
            "step {i}"
        );
        assert!(step.gradients_equal && step.parameters_equal && !step.copied, "step {i}");
    }
    assert!(steps.iter().any(|step| step.report.clipped));
    let loss = |steps: &[_]| steps.iter().map(|s: &crate::digits::comparison::Step| s.loss).sum::<f32>();
    assert!(loss(&steps[15..]) < 0.9 * loss(&steps[..5]));
}

#[test]
fn a_norm_for_each_parameter_is_another_update() {
    let net = Net::seeded(&gpu().device, 7);
    let [ours, burns, none] = ways(gpu(), &net, &batches(1, &gpu().device).unwrap()[0]).unwrap();
    assert!((ours.gradient - f64::from(MAX_NORM)).abs() < 1e-6, "{}", ours.gradient);
    assert!(ours.gradient < burns.gradient && burns.gradient < none.gradient);
    assert!(ours.update < burns.update && burns.update < none.update);
    assert_ne!(ours.parameters, burns.parameters);
}

#[test]
fn a_step_with_nan_leaves_model_and_optimizer_as_they_were() {
    let net = Net::seeded(&gpu().device, 7);
    let batches = batches(3, &gpu().device).unwrap();
    let trainer = || Trainer::new(&net, Clipping::GlobalAwaited(Clipper::new(&gpu().context)));
    let step = |trainer: &mut Trainer, batch: &Batch| {
        let (_, grads) = trainer.backward(batch);
        trainer.apply(grads).unwrap()
    };
    let (mut with, mut without) = (trainer(), trainer());
    assert!(step(&mut with, &batches[0]) && step(&mut without, &batches[0]));
    assert!(!step(&mut with, &batches[1].with_nan()));
    assert_eq!(oracle::parameters(&with.model), oracle::parameters(&without.model));
    // The momentum shows in the next step.
    assert!(step(&mut with, &batches[2]) && step(&mut without, &batches[2]));
    assert_eq!(oracle::parameters(&with.model), oracle::parameters(&without.model));

    // Why the verdict has to be awaited: nonfinite gradients are left as they are.
    let mut hasty = Trainer::new(&net, Clipping::Global(Clipper::new(&gpu().context)));
    assert!(step(&mut hasty, &batches[1].with_nan()));
    let poisoned = oracle::parameters(&hasty.model);
    assert!(poisoned.iter().flatten().any(|&word| f32::from_bits(word).is_nan()));
}
