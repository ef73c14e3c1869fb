//! What the example and its tests train: a small convolutional network on real 8x8 digits.

#[allow(dead_code, reason = "shared with the other programs")]
#[path = "../../../conformance/adapters.rs"]
mod adapters;
pub mod comparison;
#[allow(dead_code, reason = "shared with the other programs")]
#[path = "../../../train/data.rs"]
mod data;
pub mod gpu;
pub mod model;
pub mod oracle;
pub mod training;
