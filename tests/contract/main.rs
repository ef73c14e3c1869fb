//! What an engine may rely on: state that survives, verdicts, skips, limits from anywhere, measuring, handles.
//!
//! Ids in names (P04, W2) are those of public reports, of which each kind has to stay impossible here.

#[path = "../common/mod.rs"]
mod common;

mod handles;
mod joint;
mod limits;
mod lost;
mod measure;
mod ranks;
mod roles;
mod skips;
#[cfg(feature = "serde")]
mod state;
mod support;
mod verdict;
