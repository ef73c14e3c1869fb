//! Reports of a scaler's updates: what they say, and how they come.

#[path = "../common/mod.rs"]
mod common;

mod contents;
mod delivery;
mod norms;
mod ran;
mod rig;
mod text;
mod threads;
