//! What a bug report has to say about the machine.

use std::collections::BTreeMap;
use std::fmt;

use crate::Context;

/// Where the kernels of a [`Context`] run, as a user pastes it into a bug report: its text (`to_string`) is that
/// block. Strings and numbers only, so that a log can keep it; a serde type with the `serde` feature.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Environment {
    /// Version of this crate.
    pub version: &'static str,
    /// Operating system that the program was compiled for, as [`std::env::consts::OS`].
    pub os: &'static str,
    /// Processor that the program was compiled for, as [`std::env::consts::ARCH`].
    pub arch: &'static str,
    /// Name of the adapter.
    pub adapter: String,
    /// What kind of adapter it is: `DiscreteGpu`, `IntegratedGpu`, `VirtualGpu`, `Cpu` or `Other`.
    pub device_type: String,
    /// Vendor id, of PCI as a rule.
    pub vendor: u32,
    /// Device id, of PCI as a rule.
    pub device: u32,
    /// Name of the driver; empty where the backend does not tell.
    pub driver: String,
    /// Version of the driver, in the driver's own words; empty where the backend does not tell.
    pub driver_info: String,
    /// wgpu's backend: `vulkan`, `metal`, `dx12`, `gl` or `webgpu`.
    pub backend: String,
    /// The limits of the device (not the adapter's) that decide how work is cut, or whether the crate runs at all, by
    /// their names in [`wgpu::Limits`].
    pub limits: BTreeMap<&'static str, u64>,
    /// The features that the device was made with. The crate uses none, but they change what a driver is asked for.
    pub features: Vec<String>,
    /// Whether the kernels carry wgpu's bounds on loops ([`Context::with_runtime_checks`]).
    pub loop_bounds: bool,
    /// Words of a tile, and windows of a dispatch at most, in sets that are cut as [`Context::plan_limits`] says; `None`
    /// where it has not measured, or has nothing to say.
    pub probed: Option<[u32; 2]>,
}

impl Context {
    /// The crate, adapter, driver, limits and features behind this context. Print it with every report of a wrong bit.
    #[must_use]
    pub fn environment(&self) -> Environment {
        let info = self.device().adapter_info();
        Environment {
            version: env!("CARGO_PKG_VERSION"),
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            adapter: info.name,
            device_type: format!("{:?}", info.device_type),
            vendor: info.vendor,
            device: info.device,
            driver: info.driver,
            driver_info: info.driver_info,
            backend: info.backend.to_string(),
            limits: relevant(&self.device().limits()),
            features: self.device().features().iter_names().map(|(name, _)| name.to_string()).collect(),
            loop_bounds: self.shared.checks.force_loop_bounding,
            probed: self
                .shared
                .tuning
                .get()
                .filter(|found| found.probed)
                .map(|found| [found.tile_words, found.windows_per_dispatch]),
        }
    }
}

fn relevant(limits: &wgpu::Limits) -> BTreeMap<&'static str, u64> {
    let narrow = [
        ("max_bind_groups", limits.max_bind_groups),
        ("max_compute_invocations_per_workgroup", limits.max_compute_invocations_per_workgroup),
        ("max_compute_workgroup_size_x", limits.max_compute_workgroup_size_x),
        ("max_compute_workgroup_storage_size", limits.max_compute_workgroup_storage_size),
        ("max_compute_workgroups_per_dimension", limits.max_compute_workgroups_per_dimension),
        ("max_storage_buffers_per_shader_stage", limits.max_storage_buffers_per_shader_stage),
        ("max_uniform_buffers_per_shader_stage", limits.max_uniform_buffers_per_shader_stage),
        ("min_storage_buffer_offset_alignment", limits.min_storage_buffer_offset_alignment),
        ("min_uniform_buffer_offset_alignment", limits.min_uniform_buffer_offset_alignment),
    ];
    let wide = [
        ("max_buffer_size", limits.max_buffer_size),
        ("max_storage_buffer_binding_size", limits.max_storage_buffer_binding_size),
    ];
    narrow.into_iter().map(|(name, limit)| (name, u64::from(limit))).chain(wide).collect()
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |text: &str| if text.is_empty() { "unknown".to_string() } else { text.to_string() };
        writeln!(f, "gradclip {} on {} {}", self.version, self.os, self.arch)?;
        writeln!(
            f,
            "adapter: {} ({}, vendor {:#06x}, device {:#06x})",
            told(&self.adapter),
            self.device_type,
            self.vendor,
            self.device
        )?;
        writeln!(f, "driver: {}, version {}", told(&self.driver), told(&self.driver_info))?;
        writeln!(f, "backend: {}", self.backend)?;
        let limits: Vec<String> = self.limits.iter().map(|(name, limit)| format!("{name} {limit}")).collect();
        writeln!(f, "limits: {}", limits.join(", "))?;
        let features = if self.features.is_empty() { "none".to_string() } else { self.features.join(", ") };
        writeln!(f, "features: {features}")?;
        writeln!(f, "loop bounds: {}", if self.loop_bounds { "kept" } else { "left out" })?;
        match self.probed {
            Some([tile, windows]) => write!(f, "probe: tiles of {tile} words, {windows} windows a dispatch"),
            None => write!(f, "probe: not run"),
        }
    }
}
