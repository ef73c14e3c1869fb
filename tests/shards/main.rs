//! Gradients that lie on several devices: the ledgers of the parts, added up, make the step of the whole on every bit.

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod devices;
#[path = "../properties/inputs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod inputs;
mod misuse;
mod parts;
mod random;
mod scaler;
mod wire;
