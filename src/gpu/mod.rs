//! What is made on a device: pipelines, buffers and bind groups, and reading back.

pub(crate) mod bound;
pub(crate) mod compiled;
pub(crate) mod context;
pub(crate) mod readback;
pub(crate) mod shader;
