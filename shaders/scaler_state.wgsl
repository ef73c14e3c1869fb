// The state of a scaler, on the GPU. The scale comes first: a loss kernel binds just that.
struct ScalerState {
    // f32 bits.
    scale: u32,
    // Finite updates since the scale last changed or a step was skipped.
    growth_tracker: u32,
    // Bad updates that are still forgiven, this one included.
    hysteresis_left: u32,
    // Updates skipped because of inf, NaN or overflow; in a row.
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
    overflow: u32,
    fresh: u32,
    reserved_0: u32,
    reserved_1: u32,
    reserved_2: u32,
}
