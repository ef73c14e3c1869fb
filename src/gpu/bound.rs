//! The gradients' buffers in bind groups, ready to dispatch.

use super::context::Shared;
use super::guard::guarded;
use super::make::{group, part};
use super::scratch::{STRIDE, Scratch};
use super::shader::Kernel;
use crate::plan::{Access, Dispatch, Plan, PlanTensor, Window};
use crate::slice::Tensor;
use crate::{Error, Format};

/// The tensors of a set and where they lie.
pub(crate) struct Gradients<'a> {
    pub set: &'a str,
    pub tensors: &'a [Tensor],
    pub layout: &'a [PlanTensor],
    pub buffers: &'a [wgpu::Buffer],
}

/// One dispatch of the read pass and of the write pass.
#[derive(Debug)]
pub(crate) struct Bound {
    pub norm_partials: wgpu::ComputePipeline,
    pub apply: wgpu::ComputePipeline,
    pub read: wgpu::BindGroup,
    pub write: wgpu::BindGroup,
    pub groups: (u32, u32),
    /// What its kernels are made for.
    pub shape: (Format, Access, u32),
    /// Whether a step writes its tensors.
    pub scaled: bool,
}

/// Binds the windows of every dispatch.
pub(crate) fn bind(
    shared: &Shared,
    plan: &Plan,
    gradients: &Gradients<'_>,
    scratch: &Scratch,
) -> Result<Vec<Bound>, Error> {
    let mut bound = Vec::with_capacity(plan.dispatches.len());
    for (i, dispatch) in plan.dispatches.iter().enumerate() {
        let count = padded(dispatch, plan);
        let mut resources = vec![scratch.dispatch(i)];
        for &window in &dispatch.windows {
            resources.extend(gradients.window(&plan.windows[window]));
        }
        for unused in dispatch.windows.len() as u64..u64::from(count) {
            resources.push(part(&scratch.spare, unused * STRIDE, STRIDE));
        }
        let Dispatch { format, access, .. } = *dispatch;
        let kernels = (Kernel::NormPartials(format, access, count), Kernel::Apply(format, access, count));
        let (norm_partials, apply) = (shared.pipeline(kernels.0)?, shared.pipeline(kernels.1)?);
        let what = format!("set \"{}\": binding its gradients", gradients.set);
        let groups = guarded(&shared.device, &what, || {
            (
                group(shared, &shared.window_layout(false, count), &resources),
                group(shared, &shared.window_layout(true, count), &resources),
            )
        });
        let (read, write) =
            groups.map_err(|refused| gradients.blame(shared, plan, dispatch, scratch).unwrap_or(refused))?;
        let shape = (format, access, count);
        bound.push(Bound {
            norm_partials,
            apply,
            read,
            write,
            groups: dispatch.groups,
            shape,
            scaled: dispatch.role.scaled(),
        });
    }
    Ok(bound)
}

/// Windows that the pipeline of a dispatch binds: few sizes, so that few pipelines are compiled.
pub(crate) fn padded(dispatch: &Dispatch, plan: &Plan) -> u32 {
    let most = plan.dispatches.iter().map(|d| d.windows.len()).max().unwrap_or(1);
    let windows = if dispatch.windows.len() == 1 { 1 } else { most };
    windows as u32
}

impl Gradients<'_> {
    fn window(&self, window: &Window) -> Option<wgpu::BindingResource<'_>> {
        let tensor = self.layout.iter().position(|t| t.buffer == window.buffer)?;
        Some(part(&self.buffers[tensor], window.offset, window.size))
    }

    /// Binds each window of a refused dispatch alone, to name the tensor whose buffer is to blame.
    fn blame(&self, shared: &Shared, plan: &Plan, dispatch: &Dispatch, scratch: &Scratch) -> Option<Error> {
        dispatch.windows.iter().find_map(|&window| {
            let window = &plan.windows[window];
            let guilty = self.first_in(window, dispatch.format)?;
            let what =
                format!(
                "set \"{}\", tensor \"{}\": its buffer has to be of the context's device, and neither destroyed nor mapped",
                self.set, self.tensors[guilty].name
            );
            let resources = [scratch.dispatch(0), self.window(window)?];
            guarded(&shared.device, &what, || group(shared, &shared.window_layout(false, 1), &resources))
                .err()
        })
    }

    /// The first tensor of a format that reaches into a window.
    fn first_in(&self, window: &Window, format: Format) -> Option<usize> {
        self.layout.iter().position(|t| {
            t.buffer == window.buffer
                && t.format == format
                && t.len > 0
                && t.offset < window.offset + window.size
                && window.offset < t.end()
        })
    }
}
