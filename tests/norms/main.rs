//! The other norms than L2, and the limits of each tensor and of each element.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../properties/arrange.rs"]
mod arrange;
#[path = "../common/mod.rs"]
mod common;
#[path = "../properties/inputs.rs"]
mod inputs;
mod random;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../reports/rig.rs"]
mod rig;
mod scaler;
mod shapes;
mod ties;
mod truth;
mod values;
