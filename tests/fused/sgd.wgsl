// SGD with momentum and weight decay, as torch.optim.SGD.

fn update(i: u32, gradient: f32) {
    let decayed = gradient + times(hyper.weight_decay, parameters[i]);
    let velocity = times(hyper.beta_1, moments[i]) + decayed;
    moments[i] = velocity;
    parameters[i] -= times(hyper.rate, velocity);
}
