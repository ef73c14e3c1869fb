//! Faults that users of other libraries reported, each with a small input and the right result. A test's name
//! begins with the id of its report; `tests/PUBLIC_REPORTS.md` lists those that are tested elsewhere.
//!
//! Each runs on every adapter. Where the decimal in the report and the definition (`gradclip::reference`) differ by a rounding, the bits
//! here are those of the definition, and the decimal is held to its printed digits.

#[path = "../common/mod.rs"]
mod common;

mod accumulation;
mod binding;
mod buffer_lists;
mod clip_edges;
mod conversion;
mod detection;
mod failure;
mod loss_scale;
mod nonfinite_step;
mod order;
mod range;
mod reduction;
mod sizes;
mod submission;
mod support;
