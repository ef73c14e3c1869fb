//! The self-test: that its cases are those of `steps.json` and `scaler.json`, that they meet what a driver gets wrong,
//! and that it says so on every adapter without disturbing its caller.

#[path = "../common/mod.rs"]
mod common;

mod coverage;
mod device;
mod embedded;
mod text;
