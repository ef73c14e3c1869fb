//! Where Burn keeps the gradients of a module: name, buffer, offset, length and format of each, for [`gradclip::GradSet`].
//!
//! This file, `dense.rs` and `primitive.rs` need nothing else of this package: to use them elsewhere, copy the three.

use std::collections::HashSet;
use std::marker::PhantomData;

use burn::backend::wgpu::{AutoCompiler, CubeTensor, WgpuResource};
use burn::backend::{CubeDevice, StreamId};
use burn::cubecl::client::Client;
use burn::cubecl::server::BufferBinding;
use burn::cubecl::wgpu::WgpuServer;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor};
use gradclip::{Format, TensorSlice};

use crate::dense::is_dense;
use crate::primitive;

/// Why the gradients cannot be clipped where they lie. Each names the parameter by its path in the module.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GradSlicesError {
    /// The gradient is not a plain float tensor of Burn's wgpu runtime: it is on another backend, or was registered with
    /// its autodiff graph (call `inner()` on it).
    #[error("gradient of \"{parameter}\": not a plain tensor of Burn's wgpu runtime: {reason}")]
    Backend {
        /// The parameter.
        parameter: String,
        /// What Burn says.
        reason: String,
    },
    /// The gradients are spread over devices. One norm needs them on one.
    #[error("gradient of \"{parameter}\": on {device}, while those before it are on {expected}")]
    Device {
        /// The parameter.
        parameter: String,
        /// Where its gradient is.
        device: String,
        /// Where the others are.
        expected: String,
    },
    /// Burn keeps the gradient in tiles for its matrix products, or a copy came out no better than the original.
    #[error(
        "gradient of \"{parameter}\": shape {shape:?} with strides {strides:?} cannot be written in place"
    )]
    Layout {
        /// The parameter.
        parameter: String,
        /// Shape as it lies in memory.
        shape: Vec<usize>,
        /// Steps between neighbours, in elements.
        strides: Vec<usize>,
    },
    /// Neither f32, f16 nor bf16.
    #[error("gradient of \"{parameter}\": its type is {dtype:?}, and gradclip takes F32, F16 and BF16")]
    Dtype {
        /// The parameter.
        parameter: String,
        /// The gradient's type.
        dtype: DType,
    },
    /// Burn could not say where the gradient is, for instance because the kernels that should have written it failed.
    #[error("gradient of \"{parameter}\": {reason}")]
    Memory {
        /// The parameter.
        parameter: String,
        /// What Burn says.
        reason: String,
    },
    /// Burn could not submit the work that was queued before.
    #[error("flushing Burn's queue: {reason}")]
    Flush {
        /// What Burn says.
        reason: String,
    },
}

/// A gradient in Burn's memory.
struct Slice {
    name: String,
    resource: WgpuResource,
    len: u64,
    format: Format,
    /// While a binding is out, Burn neither frees the memory nor hands it out nor moves it.
    _memory: BufferBinding,
}

/// The gradients of a module, in the order in which Burn visits its parameters.
///
/// Drop it once the clip is submitted: what Burn submits afterwards comes later on the same queue, so the memory may then
/// be used again. Until then the gradients are borrowed, so that no optimizer comes in between.
#[must_use = "it keeps the memory of the gradients"]
pub struct GradSlices<'g> {
    slices: Vec<Slice>,
    copied: Vec<String>,
    grads: PhantomData<&'g mut GradientsParams>,
}

impl GradSlices<'_> {
    /// Path of the parameter, such as `conv1.weight`, and place of its gradient.
    pub fn iter(&self) -> impl Iterator<Item = (&str, TensorSlice<'_>)> {
        self.slices.iter().map(|slice| {
            let (buffer, offset) = (&slice.resource.buffer, slice.resource.offset);
            (slice.name.as_str(), TensorSlice { buffer, offset, len: slice.len, format: slice.format })
        })
    }

    /// The parameters whose gradient could not be written where it was, and got a copy: see [`grad_slices`].
    pub fn copied(&self) -> &[String] {
        &self.copied
    }
}

/// Finds the gradients of `model` in `grads` and submits everything that Burn has queued to compute them, so that
/// whatever is submitted from now on to Burn's queue sees them finished.
///
/// Parameters without a gradient are left out, and a parameter that occurs twice in the module is taken once. A gradient
/// that lies permuted (as those of convolutions do) is taken as it lies: neither the norm nor the factor depends on order,
/// but an index in a report counts along the memory.
///
/// **What is copied.** A gradient that must not or cannot be written where it is gets a copy on the GPU, which takes its
/// place in `grads`, and [`GradSlices::copied`] names it. An error would leave the caller nothing to do but to make that
/// copy. There are two kinds:
///
/// - It shares memory. Burn gives out the same memory twice where that is free: the backward pass of `x + y` hands both
///   sides one tensor, and a reshape or a clone is another handle to the same bytes. Written in place, such a gradient
///   would be scaled once for each parameter, and change for whoever else holds it. Burn's own in-place kernels ask the
///   reference count first, and so does this. Of two parameters that share, one is copied, and the other is then alone.
/// - It is no block of memory: a view with gaps (Burn may leave one for the weights of a convolution with a stride) or one
///   that repeats elements (an expanded tensor).
///
/// # Errors
/// See [`GradSlicesError`]. All gradients are still in `grads` then, with their values.
///
/// # Panics
/// Only where Burn does: with fusion, if the kernels that should have written a gradient failed.
pub fn grad_slices<'g, M: Module>(
    model: &M,
    grads: &'g mut GradientsParams,
) -> Result<GradSlices<'g>, GradSlicesError> {
    let mut walk = Walk {
        grads,
        path: Vec::new(),
        seen: HashSet::new(),
        device: None,
        client: None,
        streams: HashSet::from([StreamId::current()]),
        slices: Vec::new(),
        copied: Vec::new(),
        failed: None,
    };
    model.visit(&mut walk);
    if let Some(error) = walk.failed {
        return Err(error);
    }
    // In this version of Burn asking for the memory has submitted it all; that it will is nowhere promised.
    if let Some(client) = walk.client {
        for stream in walk.streams {
            let flushed = stream.executes(|| client.flush());
            flushed.map_err(|e| GradSlicesError::Flush { reason: e.to_string() })?;
        }
    }
    Ok(GradSlices { slices: walk.slices, copied: walk.copied, grads: PhantomData })
}

struct Walk<'a> {
    grads: &'a mut GradientsParams,
    path: Vec<String>,
    seen: HashSet<ParamId>,
    device: Option<CubeDevice>,
    client: Option<Client>,
    /// Burn queues the work of each thread by itself. These have some that the gradients wait for.
    streams: HashSet<StreamId>,
    slices: Vec<Slice>,
    copied: Vec<String>,
    failed: Option<GradSlicesError>,
}

impl ModuleVisitor for Walk<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.failed.is_some() || !self.seen.insert(param.id) {
            return;
        }
        // Out of the container, so that its own handle does not count as a second owner.
        let Some(grad) = self.grads.remove::<D>(param.id) else { return };
        let name = self.path.join(".");
        let grad = match self.slice(name, grad, false) {
            (grad, Ok(slice)) => {
                self.slices.push(slice);
                grad
            }
            (grad, Err(error)) => {
                self.failed = Some(error);
                grad
            }
        };
        self.grads.register(param.id, grad);
    }
}

impl Walk<'_> {
    /// Also gives back the gradient, or the copy that takes its place. `copied`: it is that already.
    fn slice<const D: usize>(
        &mut self,
        name: String,
        grad: Tensor<D>,
        copied: bool,
    ) -> (Tensor<D>, Result<Slice, GradSlicesError>) {
        let (tensor, home) = match primitive::take(grad) {
            Ok(taken) => taken,
            Err(refused) => {
                let (grad, reason) = *refused;
                return (grad, Err(GradSlicesError::Backend { parameter: name, reason: reason.into() }));
            }
        };
        let located = self.check(&name, &tensor).and_then(|format| locate(&name, &tensor, format));
        // Now all that was queued for this memory has reached Burn's server, so the count of its owners is true.
        let writable = tensor.handle.can_mut() && is_dense(tensor.meta.shape(), tensor.meta.strides());
        let layout = || GradSlicesError::Layout {
            parameter: name.clone(),
            shape: tensor.meta.shape().to_vec(),
            strides: tensor.meta.strides().to_vec(),
        };
        let located = match located {
            Ok(_) if tensor.meta.is_tiled() || (copied && !writable) => Err(layout()),
            other => other,
        };
        self.streams.insert(tensor.handle.stream);
        self.client.get_or_insert_with(|| tensor.client.clone());
        let grad = primitive::put(tensor, home);
        if located.is_err() || writable {
            return (grad, located);
        }
        self.copied.push(name.clone());
        let whole = grad.dims().map(|len| 0..len);
        let copy = grad.zeros_like().slice_assign(whole, grad);
        self.slice(name, copy, true)
    }

    fn check(&mut self, name: &str, tensor: &CubeTensor) -> Result<Format, GradSlicesError> {
        let parameter = || name.to_owned();
        let CubeDevice::Wgpu(_) = tensor.device else {
            let reason = format!("it is on {:?}", tensor.device);
            return Err(GradSlicesError::Backend { parameter: parameter(), reason });
        };
        let expected = self.device.get_or_insert_with(|| tensor.device.clone());
        if *expected != tensor.device {
            let (device, expected) = (format!("{:?}", tensor.device), format!("{expected:?}"));
            return Err(GradSlicesError::Device { parameter: parameter(), device, expected });
        }
        let format = match tensor.dtype {
            DType::F32 => Format::F32,
            DType::F16 => Format::F16,
            DType::BF16 => Format::Bf16,
            dtype => return Err(GradSlicesError::Dtype { parameter: parameter(), dtype }),
        };
        Ok(format)
    }
}

fn locate(name: &str, tensor: &CubeTensor, format: Format) -> Result<Slice, GradSlicesError> {
    let memory = |reason| GradSlicesError::Memory { parameter: name.into(), reason };
    let len = tensor.meta.shape().num_elements() as u64;
    let handle = &tensor.handle;
    let resource = tensor
        .client
        .get_resource::<WgpuServer<AutoCompiler>>(handle.clone())
        .map_err(|e| memory(e.to_string()))?
        .resource()
        .clone();
    let bytes = len * format.size();
    if resource.size < bytes && is_dense(tensor.meta.shape(), tensor.meta.strides()) {
        return Err(memory(format!("Burn holds {} bytes for {bytes}", resource.size)));
    }
    Ok(Slice { name: name.into(), resource, len, format, _memory: handle.clone().binding() })
}
