//! What is made on a device: pipelines, buffers and bind groups, and reading back.

pub(crate) mod bound;
pub(crate) mod context;
pub(crate) mod guard;
pub(crate) mod mailbox;
pub(crate) mod make;
pub(crate) mod readback;
pub(crate) mod ring;
pub(crate) mod scratch;
pub(crate) mod shader;
pub(crate) mod wgsl;
