// A gradient times the factor of a verdict, for a kernel that applies the factor itself: rounded once to f32, to nearest
// even, subnormals kept, as the step itself stores an f32 gradient. Bits in, bits out, since a driver may flush the float.
fn gradclip_scaled_gradient_bits(verdict: GradclipVerdict, gradient: u32) -> u32 {
    if verdict.apply == 0u {
        return select(gradient, 0u, verdict.skip == 1u);
    }
    let magnitude = gradient & 0x7fffffffu;
    var product = bitcast<u32>(bitcast<f32>(magnitude) * verdict.factor);
    // Near the smallest normal the unit may flush what it reads or writes; 2: the factor is outside f32.
    if verdict.apply == 2u || (product < 0x1000000u && magnitude != 0u) {
        product = multiply_bits(magnitude, R24(verdict.factor_significand, verdict.factor_exponent));
    }
    return product | (gradient & 0x80000000u);
}

fn gradclip_scaled_gradient(verdict: GradclipVerdict, gradient: f32) -> f32 {
    return bitcast<f32>(gradclip_scaled_gradient_bits(verdict, bitcast<u32>(gradient)));
}
