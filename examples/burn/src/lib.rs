//! [gradclip](gradclip) for [Burn](burn): one global norm over the gradients of a module, clipped in place in Burn's own
//! buffers, on its own device and queue.

#![deny(missing_docs)]

mod clipper;
mod dense;
mod grad_slices;
mod primitive;

pub use clipper::{ClipError, Clipper};
pub use grad_slices::{GradSlices, GradSlicesError, grad_slices};
