//! What the crate refuses, and what it says: the whole of every message, so that no wording changes by
//! accident. After each error the gradients hold the same bytes, and the set, if there is one, works as
//! before.

#[path = "../common/mod.rs"]
mod common;

mod buffers;
mod hostile;
mod limits;
mod parameters;
mod rebind;
mod sets;
mod slices;
mod support;
