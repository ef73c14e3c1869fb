//! Burn's gradients, clipped in place. Fails where there is no adapter.

#[allow(dead_code, reason = "shared with the example")]
#[path = "../../src/digits/mod.rs"]
mod digits;
mod errors;
mod gradients;
mod readme;
mod training;

use std::sync::OnceLock;

use digits::gpu::{self, Gpu};
use gradclip::wgpu;

/// The best adapter of this machine.
fn adapter() -> &'static wgpu::Adapter {
    static ADAPTER: OnceLock<wgpu::Adapter> = OnceLock::new();
    ADAPTER.get_or_init(|| gpu::adapter("all").unwrap_or_else(|e| panic!("{e}")))
}

/// One device for all tests, so that Burn compiles its kernels once.
fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(another_gpu)
}

/// A second device on the same adapter.
fn another_gpu() -> Gpu {
    gpu::open(adapter()).unwrap_or_else(|e| panic!("{e}"))
}
