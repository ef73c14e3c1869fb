//! What is made once per device: pipelines and bind group layouts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::guard::guarded;
use super::make::{Binding, filled, group, layout, part};
use super::ring::Ring;
use super::shader::{Kernel, THREADS};
use crate::plan::{self, Tuning};
use crate::{Error, Word};

/// The kernels of one device, shared by all its sets. Cheap to clone.
///
/// Pipelines are compiled when a set is built or prepared and kept. Recording never compiles.
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
    tools: OnceLock<Tools>,
}

/// What recording needs of the context.
#[derive(Debug)]
pub(crate) struct Tools {
    pub ring: Ring,
    /// In place of a scaler's state.
    pub no_scaler: wgpu::BindGroup,
    pub gather: wgpu::ComputePipeline,
}

/// Group 0 holds what a set owns, group 1 what changes with the dispatch or the step, group 2 the scaler's state.
#[derive(Debug)]
pub(crate) struct Layouts {
    pub norm_partials: wgpu::BindGroupLayout,
    pub norm_finish: wgpu::BindGroupLayout,
    pub norm_joined: wgpu::BindGroupLayout,
    pub apply: wgpu::BindGroupLayout,
    pub apply_each: wgpu::BindGroupLayout,
    pub apply_counted: wgpu::BindGroupLayout,
    pub apply_each_counted: wgpu::BindGroupLayout,
    pub lost_clear: wgpu::BindGroupLayout,
    pub step: wgpu::BindGroupLayout,
    pub scaler: wgpu::BindGroupLayout,
    pub shard_ledger: wgpu::BindGroupLayout,
    pub tensor_norms: wgpu::BindGroupLayout,
    pub tensor_factors: wgpu::BindGroupLayout,
    pub scale_update: wgpu::BindGroupLayout,
    pub agree: wgpu::BindGroupLayout,
    pub gather: wgpu::BindGroupLayout,
    pub head: wgpu::BindGroupLayout,
    pub delta_norm: wgpu::BindGroupLayout,
    windows: Mutex<HashMap<(bool, u32), wgpu::BindGroupLayout>>,
}

impl Context {
    /// Wraps a device and its own queue (that of another device makes wgpu panic at the first submission); both stay the
    /// caller's. Needs no features, and only the limits that WebGPU guarantees (or 3 storage buffers a stage beside one
    /// kept free).
    ///
    /// # Errors
    /// [`Error::DeviceLimit`] if the device was made with too small limits, [`Error::Wgpu`] if wgpu refuses a layout,
    /// [`Error::DeviceLost`].
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
            use Binding::{DynamicUniform, Read, Uniform, Unused, Write};
            let layout = |label, bindings: &[Binding]| layout(device, label, bindings);
            Layouts {
                norm_partials: layout("gradclip norm_partials", &[Read, Write]),
                norm_finish: layout("gradclip norm_finish", &[Read, Read, Write, Uniform]),
                norm_joined: layout("gradclip norm_joined", &[Read, Read, Write, Uniform, Read]),
                apply: layout("gradclip apply", &[Read, Read]),
                apply_each: layout("gradclip apply", &[Read, Read, Read]),
                apply_counted: layout("gradclip apply", &[Read, Read, Unused, Write]),
                apply_each_counted: layout("gradclip apply", &[Read, Read, Read, Write]),
                lost_clear: layout("gradclip lost_clear", &[Write, Unused, Unused, Uniform]),
                step: layout("gradclip step", &[DynamicUniform]),
                scaler: layout("gradclip scaler", &[Uniform]),
                shard_ledger: layout("gradclip shard_ledger", &[Read, Write, Unused, Uniform]),
                tensor_norms: layout("gradclip tensor_norms", &[Read, Read, Write, Uniform, Read]),
                tensor_factors: layout("gradclip tensor_factors", &[Write, Write, Unused, Uniform]),
                scale_update: layout("gradclip scale_update", &[Write, Uniform, Uniform]),
                agree: layout("gradclip agree", &[Write, Uniform]),
                gather: layout("gradclip gather", &[Read, Uniform]),
                head: layout("gradclip head", &[Write]),
                delta_norm: layout("gradclip delta_norm", &[Uniform, Read, Write]),
                windows: Mutex::default(),
            }
        })?;
        let shared = Arc::new(Shared {
            device: device.clone(),
            queue: queue.clone(),
            checks,
            pipelines: Mutex::default(),
            layouts,
            tuning: OnceLock::new(),
            tools: OnceLock::new(),
        });
        let no_scaler = guarded(device, "creating gradclip's buffers", || {
            let nothing = filled(&shared, "gradclip no scaler", wgpu::BufferUsages::UNIFORM, &[0; 16]);
            group(&shared, &shared.layouts.scaler, &[nothing.as_entire_binding()])
        })?;
        let tools = Tools { ring: Ring::new(&shared)?, no_scaler, gather: shared.pipeline(Kernel::Gather)? };
        // Set once, here.
        let _ = shared.tools.set(tools);
        Ok(Self { shared })
    }

    /// A number in a buffer of the engine's: an f32 at byte `offset`, which a step that is told it reads when it runs. The
    /// buffer needs [`wgpu::BufferUsages::STORAGE`], and no kernel of the step may write it.
    ///
    /// # Errors
    /// [`Error::Word`] if the offset is not a multiple of 4, lies beyond the buffer, or the buffer lacks the usage;
    /// [`Error::Wgpu`] if wgpu refuses the buffer; [`Error::DeviceLost`].
    pub fn word(&self, buffer: &wgpu::Buffer, offset: u64) -> Result<Word, Error> {
        let refuse = |why: &str| Err(Error::Word { offset, why: why.into() });
        if !offset.is_multiple_of(4) {
            return refuse("the offset is not a multiple of 4");
        }
        if offset.checked_add(4).is_none_or(|end| end > buffer.size()) {
            return refuse("it lies beyond the end of the buffer");
        }
        if !buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
            return refuse("the buffer was created without BufferUsages::STORAGE");
        }
        let shared = &self.shared;
        let align = u64::from(shared.device.limits().min_storage_buffer_offset_alignment);
        let start = offset / align * align;
        let group = guarded(&shared.device, "binding a number of a step", || {
            let place = [((offset - start) / 4) as u32, 0, 0, 0];
            let usage = wgpu::BufferUsages::UNIFORM;
            let place = filled(shared, "gradclip word", usage, bytemuck::cast_slice(&place));
            let resources = [part(buffer, start, offset + 4 - start), place.as_entire_binding()];
            group(shared, &shared.layouts.gather, &resources)
        })?;
        Ok(Word { buffer: buffer.clone(), offset, group })
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

    /// The groups of the kernels that read a step's numbers.
    fn of_step(&self) -> Vec<wgpu::BindGroupLayout> {
        vec![self.layouts.step.clone(), self.layouts.scaler.clone()]
    }

    /// Set for the life of every context.
    pub fn tools(&self) -> Result<&Tools, Error> {
        self.tools.get().ok_or_else(|| Error::DeviceLost { what: "using a context that was not made".into() })
    }

    fn compile(&self, kernel: Kernel) -> wgpu::ComputePipeline {
        let layouts = &self.layouts;
        let (own, others) = match kernel {
            Kernel::DeltaNorm(_) => (&layouts.delta_norm, vec![]),
            Kernel::LostClear => (&layouts.lost_clear, vec![]),
            Kernel::NormPartials(_, _, k) | Kernel::L1Partials(_, _, k) => {
                (&layouts.norm_partials, vec![self.window_layout(false, k)])
            }
            Kernel::NormFinish | Kernel::NormMerged => (&layouts.norm_finish, self.of_step()),
            Kernel::NormJoined => (&layouts.norm_joined, self.of_step()),
            Kernel::ShardLedger => (&layouts.shard_ledger, self.of_step()),
            Kernel::TensorNorms => (&layouts.tensor_norms, self.of_step()),
            Kernel::TensorFactors => (&layouts.tensor_factors, self.of_step()),
            Kernel::ScaleUpdate => (&layouts.scale_update, vec![layouts.head.clone()]),
            Kernel::Agree => (&layouts.agree, vec![layouts.head.clone()]),
            Kernel::Gather => (&layouts.gather, vec![layouts.head.clone()]),
            Kernel::Apply(_, _, k) => (&layouts.apply, vec![self.window_layout(true, k)]),
            Kernel::ApplyEach(_, _, k) => (&layouts.apply_each, vec![self.window_layout(true, k)]),
            Kernel::ApplyCounted(_, _, k) => (&layouts.apply_counted, vec![self.window_layout(true, k)]),
            Kernel::ApplyEachCounted(_, _, k) => {
                (&layouts.apply_each_counted, vec![self.window_layout(true, k)])
            }
        };
        let groups: Vec<_> = std::iter::once(own).chain(&others).map(Some).collect();
        let label = Some(kernel.name());
        let source =
            wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(kernel.wgsl().into()) };
        // SAFETY: the only check that may be off is the bound on loops, and every loop of the kernels ends: each counts
        // up to a constant or to the end of a tile by a constant step, far below 2^32 since windows are below 2^31
        // bytes, or clears a bit of a word a turn. Bounds on memory accesses stay on.
        let module = unsafe { self.device.create_shader_module_trusted(source, self.checks) };
        let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &groups,
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
        ("max_bind_groups", limits.max_bind_groups, 3),
        (
            "max_dynamic_uniform_buffers_per_pipeline_layout",
            limits.max_dynamic_uniform_buffers_per_pipeline_layout,
            1,
        ),
    ] {
        if u64::from(has) < needed {
            return Err(Error::DeviceLimit { limit, needed, has: u64::from(has) });
        }
    }
    Ok(())
}
