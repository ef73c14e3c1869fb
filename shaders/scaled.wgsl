// A gradient times the factor of a verdict, for a kernel that applies the factor itself: one rounding to f32.
fn scaled_gradient(verdict: Verdict, gradient: f32) -> f32 {
    if verdict.apply != 2u {
        return gradient * verdict.factor;
    }
    // The factor is outside f32, as with a loss scale of 2^127: its power of two in two halves.
    let significand = f32(verdict.factor_significand) * 1.1920928955078125e-7;
    let exponent = verdict.factor_exponent + 23;
    let half = exponent / 2;
    return ldexp(ldexp(gradient * significand, half), exponent - half);
}
