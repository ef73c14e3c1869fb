//! What is made once per device: pipelines and bind group layouts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::shader::{Kernel, THREADS};
use crate::Error;
use crate::plan::{self, Tuning};

/// The kernels of one device, shared by all its sets. Cheap to clone.
///
/// Pipelines are compiled when a set first needs them and kept. Recording a step of the usual kind never compiles; the first
/// with an L1 norm, a limit for each tensor or element, or a ledger does.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub checks: wgpu::ShaderRuntimeChecks,
    pipelines: Mutex<HashMap<Kernel, wgpu::ComputePipeline>>,
    pub layouts: Layouts,
    /// What the probe found, once it ran or was turned off.
    pub tuning: OnceLock<Tuning>,
}

/// Group 0 holds what a set owns, group 1 what changes with the dispatch or the step.
#[derive(Debug)]
pub(crate) struct Layouts {
    pub norm_partials: wgpu::BindGroupLayout,
    pub norm_finish: wgpu::BindGroupLayout,
    pub apply: wgpu::BindGroupLayout,
    pub step: wgpu::BindGroupLayout,
    pub shard_ledger: wgpu::BindGroupLayout,
    pub tensor_norms: wgpu::BindGroupLayout,
    pub tensor_factors: wgpu::BindGroupLayout,
    pub scale_update: wgpu::BindGroupLayout,
    pub verdict: wgpu::BindGroupLayout,
    pub delta_norm: wgpu::BindGroupLayout,
    windows: Mutex<HashMap<(bool, u32), wgpu::BindGroupLayout>>,
}

#[derive(Clone, Copy)]
pub(crate) enum Binding {
    Read,
    Write,
    Uniform,
}

impl Context {
    /// Wraps a device and its own queue (that of another device makes wgpu panic at the first submission); both stay the
    /// caller's. Needs no features, and only the limits that WebGPU guarantees (or 3 storage buffers a stage beside one
    /// kept free).
    ///
    /// # Errors
    /// [`Error::DeviceLimit`] if the device was made with too small limits, [`Error::Wgpu`] if wgpu refuses a layout.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        let mut checks = wgpu::ShaderRuntimeChecks::checked();
        // The counter that wgpu adds to each loop has cost some Metal and DX12 drivers a factor of a hundred.
        checks.force_loop_bounding = false;
        Self::with_checks(device, queue, checks)
    }

    /// [`Context::new`] with every runtime check of wgpu left in the kernels, the bounds on loops included. Same bits.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn with_runtime_checks(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        Self::with_checks(device, queue, wgpu::ShaderRuntimeChecks::checked())
    }

    fn with_checks(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        checks: wgpu::ShaderRuntimeChecks,
    ) -> Result<Self, Error> {
        check_limits(&device.limits())?;
        let layouts = guarded(device, "creating gradclip's layouts", || {
            use Binding::{Read, Uniform, Write};
            Layouts {
                norm_partials: layout(device, "gradclip norm_partials", &[Read, Write]),
                norm_finish: layout(device, "gradclip norm_finish", &[Read, Read, Write, Uniform]),
                apply: layout(device, "gradclip apply", &[Read, Read]),
                step: layout(device, "gradclip step", &[Uniform, Uniform]),
                shard_ledger: layout(device, "gradclip shard_ledger", &[Read, Write, Uniform]),
                tensor_norms: layout(device, "gradclip tensor_norms", &[Read, Read, Write, Uniform]),
                tensor_factors: layout(device, "gradclip tensor_factors", &[Write, Write, Uniform]),
                scale_update: layout(device, "gradclip scale_update", &[Write, Uniform, Uniform]),
                verdict: layout(device, "gradclip verdict", &[Write]),
                delta_norm: layout(device, "gradclip delta_norm", &[Uniform, Read, Write]),
                windows: Mutex::default(),
            }
        })?;
        let shared = Shared {
            device: device.clone(),
            queue: queue.clone(),
            checks,
            pipelines: Mutex::default(),
            layouts,
            tuning: OnceLock::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The device that this context was made for.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.shared.device
    }

    /// The queue that this context was made for.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.shared.queue
    }
}

impl Shared {
    /// The layout of group 1 of the kernels that touch gradients: a uniform and `count` windows.
    pub fn window_layout(&self, write: bool, count: u32) -> wgpu::BindGroupLayout {
        let mut made = self.layouts.windows.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry((write, count))
            .or_insert_with(|| {
                let window = if write { Binding::Write } else { Binding::Read };
                let bindings: Vec<Binding> =
                    std::iter::once(Binding::Uniform).chain((0..count).map(|_| window)).collect();
                layout(&self.device, "gradclip windows", &bindings)
            })
            .clone()
    }

    pub fn pipeline(&self, kernel: Kernel) -> Result<wgpu::ComputePipeline, Error> {
        let mut made = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = made.get(&kernel) {
            return Ok(pipeline.clone());
        }
        let what = format!("compiling {kernel:?}");
        let pipeline = guarded(&self.device, &what, || self.compile(kernel))?;
        made.insert(kernel, pipeline.clone());
        Ok(pipeline)
    }

    fn compile(&self, kernel: Kernel) -> wgpu::ComputePipeline {
        let (own, other) = match kernel {
            Kernel::DeltaNorm(_) => (&self.layouts.delta_norm, None),
            Kernel::NormPartials(_, _, k) | Kernel::L1Partials(_, _, k) => {
                (&self.layouts.norm_partials, Some(self.window_layout(false, k)))
            }
            Kernel::NormFinish | Kernel::NormMerged => {
                (&self.layouts.norm_finish, Some(self.layouts.step.clone()))
            }
            Kernel::ShardLedger => (&self.layouts.shard_ledger, Some(self.layouts.step.clone())),
            Kernel::TensorNorms => (&self.layouts.tensor_norms, Some(self.layouts.step.clone())),
            Kernel::TensorFactors => (&self.layouts.tensor_factors, Some(self.layouts.step.clone())),
            Kernel::ScaleUpdate => (&self.layouts.scale_update, Some(self.layouts.verdict.clone())),
            Kernel::Apply(_, _, k) | Kernel::ApplyEach(_, _, k) => {
                (&self.layouts.apply, Some(self.window_layout(true, k)))
            }
        };
        let label = Some(kernel.name());
        let source =
            wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(kernel.wgsl().into()) };
        // SAFETY: the only check that may be off is the bound on loops, and every loop of the kernels ends: each counts
        // up to a constant or to the end of a tile by a constant step, far below 2^32 since windows are below 2^31
        // bytes, or clears a bit of a word a turn. Bounds on memory accesses stay on.
        let module = unsafe { self.device.create_shader_module_trusted(source, self.checks) };
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(own), other.as_ref()][..1 + usize::from(other.is_some())],
            immediate_size: 0,
        });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // The kernels write every slot before they read it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        })
    }
}

/// Runs `make` inside error scopes, so that what wgpu refuses becomes an `Error` and not a panic in the caller's device.
pub(crate) fn guarded<T>(device: &wgpu::Device, what: &str, make: impl FnOnce() -> T) -> Result<T, Error> {
    let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal]
        .map(|filter| device.push_error_scope(filter));
    let made = make();
    let mut refused = None;
    for scope in scopes.into_iter().rev() {
        refused = pollster::block_on(scope.pop()).or(refused);
    }
    match refused {
        None => Ok(made),
        Some(error) => Err(Error::Wgpu { what: what.into(), message: on_one_line(&error.to_string()) }),
    }
}

/// wgpu's errors are paragraphs: a line each for what failed, inside what, and why.
pub(crate) fn on_one_line(paragraph: &str) -> String {
    let lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "Caused by:");
    lines.collect::<Vec<_>>().join(": ")
}

fn layout(device: &wgpu::Device, label: &str, bindings: &[Binding]) -> wgpu::BindGroupLayout {
    let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..)
        .zip(bindings)
        .map(|(binding, kind)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match kind {
                    Binding::Read => wgpu::BufferBindingType::Storage { read_only: true },
                    Binding::Write => wgpu::BufferBindingType::Storage { read_only: false },
                    Binding::Uniform => wgpu::BufferBindingType::Uniform,
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(label), entries: &entries })
}

fn check_limits(limits: &wgpu::Limits) -> Result<(), Error> {
    let threads = u64::from(THREADS);
    for (limit, has, needed) in [
        ("max_compute_workgroup_size_x", limits.max_compute_workgroup_size_x, threads),
        ("max_compute_invocations_per_workgroup", limits.max_compute_invocations_per_workgroup, threads),
        ("max_compute_workgroup_storage_size", limits.max_compute_workgroup_storage_size, 9_300),
        ("max_compute_workgroups_per_dimension", limits.max_compute_workgroups_per_dimension, 1),
        (
            "max_storage_buffers_per_shader_stage",
            limits.max_storage_buffers_per_shader_stage,
            u64::from(plan::OWN_STORAGE_BUFFERS) + 2,
        ),
        ("max_uniform_buffers_per_shader_stage", limits.max_uniform_buffers_per_shader_stage, 3),
        ("max_bind_groups", limits.max_bind_groups, 2),
    ] {
        if u64::from(has) < needed {
            return Err(Error::DeviceLimit { limit, needed, has: u64::from(has) });
        }
    }
    Ok(())
}

/// A bind group of these resources, in order.
pub(crate) fn group(
    shared: &Shared,
    layout: &wgpu::BindGroupLayout,
    resources: &[wgpu::BindingResource<'_>],
) -> wgpu::BindGroup {
    let entries: Vec<wgpu::BindGroupEntry<'_>> = (0..)
        .zip(resources)
        .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource: resource.clone() })
        .collect();
    shared.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("gradclip"),
        layout,
        entries: &entries,
    })
}

/// A storage buffer of zeros.
pub(crate) fn empty(shared: &Shared, label: &str, size: u64) -> wgpu::Buffer {
    shared.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    })
}

/// A buffer with these bytes.
pub(crate) fn filled(shared: &Shared, label: &str, usage: wgpu::BufferUsages, bytes: &[u8]) -> wgpu::Buffer {
    let buffer = shared.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(label),
        size: bytes.len() as u64,
        usage,
        mapped_at_creation: true,
    });
    // A buffer that was refused has no range to map; the caller's error scope knows.
    if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
        view.copy_from_slice(bytes);
    }
    buffer.unmap();
    buffer
}
