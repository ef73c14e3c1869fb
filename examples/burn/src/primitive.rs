//! From a gradient to the memory behind it and back, with Burn's fusion and without.

use burn::backend::wgpu::CubeTensor;
use burn::backend::{BackendTensor, Cube, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::Tensor;

#[cfg(feature = "fusion")]
use fused as inner;
#[cfg(not(feature = "fusion"))]
use plain as inner;

pub use inner::Home;

/// The memory behind a tensor, by its only handle if `tensor` was that. The tensor itself and what it is where it is no
/// plain float tensor of a cubecl runtime.
pub fn take<const D: usize>(tensor: Tensor<D>) -> Result<(CubeTensor, Home), Box<(Tensor<D>, &'static str)>> {
    match tensor.into_dispatch() {
        DispatchTensor {
            kind: DispatchTensorKind::Cube(BackendTensor::Float(tensor)),
            autodiff: DispatchAutodiffContext::Disabled,
        } => Ok(inner::resolve(tensor)),
        other => {
            let what = match &other.kind {
                DispatchTensorKind::Cube(BackendTensor::Quantized(_)) => "quantized",
                DispatchTensorKind::Cube(BackendTensor::Float(_)) | DispatchTensorKind::Autodiff(_) => {
                    "tracked by autodiff"
                }
                #[allow(unreachable_patterns, reason = "it is while wgpu is the only backend compiled in")]
                _ => "on another backend",
            };
            Err(Box::new((Tensor::from_dispatch(other), what)))
        }
    }
}

/// The way back of [`take`].
pub fn put<const D: usize>(tensor: CubeTensor, home: Home) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(inner::wrap(tensor, home))
}

#[cfg(not(feature = "fusion"))]
mod plain {
    use burn::backend::wgpu::CubeTensor;

    /// A tensor is its memory: nothing to remember.
    pub struct Home;

    pub fn resolve(tensor: CubeTensor) -> (CubeTensor, Home) {
        (tensor, Home)
    }

    pub fn wrap(tensor: CubeTensor, _: Home) -> CubeTensor {
        tensor
    }
}

#[cfg(feature = "fusion")]
mod fused {
    use burn::backend::fusion::{FusionBackend, FusionTensor, NoOp, client::GlobalFusionClient};
    use burn::backend::ir::{BackendIr as _, InitOperationIr, OperationIr, OperationOutput as _};
    use burn::backend::wgpu::{CubeBackend, CubeTensor};
    use burn::backend::{StreamId, TensorMetadata as _};

    type Runtime = <CubeBackend as FusionBackend>::FusionRuntime;

    /// The queue of operations that may be fused, to which the tensor belongs.
    pub type Home = GlobalFusionClient<Runtime>;

    /// Runs what is queued, so that there is memory.
    pub fn resolve(tensor: FusionTensor<Runtime>) -> (CubeTensor, Home) {
        let home = tensor.client.clone();
        (home.resolve_tensor_float::<CubeBackend>(tensor), home)
    }

    /// Registers memory that is filled already, as Burn does for data from the host.
    pub fn wrap(tensor: CubeTensor, home: Home) -> FusionTensor<Runtime> {
        let (shape, dtype) = (tensor.shape(), tensor.dtype);
        let handle = CubeBackend::float_tensor_handle(tensor);
        let init = InitOperationIr::create(shape, dtype, || home.register_tensor_handle(handle));
        home.register(StreamId::current(), OperationIr::Init(init), NoOp::<CubeBackend>::new()).output()
    }
}
