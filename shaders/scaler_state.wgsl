// The state of a scaler, on the GPU. The scale comes first: a loss kernel binds just that.
struct ScalerState {
    // f32 bits.
    scale: u32,
    // 1: a set has reached the cap on skipped steps in a row. Nothing moves any more, and every verdict says skip.
    halted: u32,
    // Finite updates since the scale last changed or a step was skipped.
    growth_tracker: u32,
    // Bad updates that are still forgiven, this one included.
    hysteresis_left: u32,
    // Updates of which a step was skipped, for whatever reason; in a row.
    skipped: u32,
    consecutive_skipped: u32,
    updates: u32,
    // Steps of single optimizers: taken; taken and clipped; left out for their norm; never run.
    stepped: u32,
    clipped: u32,
    above: u32,
    missed: u32,
    // Of the update in progress.
    found_inf: u32,
    // 1: a step was skipped, for which the scale is not to blame.
    left_out: u32,
    fresh: u32,
    reserved_0: u32,
    reserved_1: u32,
}
