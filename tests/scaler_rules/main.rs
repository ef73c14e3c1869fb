//! The rules of a scaler on every adapter: public reports by their number, errors at run time, several optimizers, and
//! what happens to commands that never reach the GPU.

#[path = "../common/mod.rs"]
mod common;

mod bad_steps;
mod cap;
mod errors;
mod left_out;
mod modes;
mod never_run;
mod optimizers;
mod order;
mod range;
mod rig;
mod skip_above;
mod submission;
