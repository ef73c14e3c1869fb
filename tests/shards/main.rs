//! Gradients that lie on several devices: the ledgers of the parts, added up, make the step of the whole on every bit.

#[path = "../common/mod.rs"]
mod common;
mod devices;
#[path = "../properties/inputs.rs"]
mod inputs;
mod misuse;
mod parts;
mod random;
mod scaler;
mod wire;
