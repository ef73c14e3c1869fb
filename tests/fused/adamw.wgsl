// AdamW, as torch.optim.AdamW.

fn update(i: u32, gradient: f32) {
    let j = hyper.elements + i;
    let first = times(hyper.beta_1, moments[i]) + times(1.0 - hyper.beta_1, gradient);
    let square = times(gradient, gradient);
    let second = times(hyper.beta_2, moments[j]) + times(1.0 - hyper.beta_2, square);
    moments[i] = first;
    moments[j] = second;
    let denominator = sqrt(second / hyper.correction_2) + hyper.epsilon;
    let decayed = parameters[i] - times(times(hyper.rate, hyper.weight_decay), parameters[i]);
    parameters[i] = decayed - times(hyper.rate, first / hyper.correction_1 / denominator);
}
