//! What the tests of misuse share.

use std::sync::{Mutex, PoisonError};

use gradclip::{ClipNorm, Error, Format, GradSet, LossScale, Report, TensorSlice, wgpu};

pub use crate::common::{Gpu, adapters, f32s, gpus, runner};

/// Runs `test` on every adapter, one test at a time on each: wgpu's GL backend gives up on its lock after 6
/// s, and a software driver compiles for longer.
pub fn each_gpu(mut test: impl FnMut(&Gpu)) {
    static TURNS: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];
    for (gpu, turn) in gpus().iter().zip(TURNS.iter().cycle()) {
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        test(gpu);
    }
}

pub fn upload(gpu: &Gpu, values: &[f32]) -> wgpu::Buffer {
    runner::upload(&gpu.context, &f32s(values))
}

pub fn bytes(gpu: &Gpu, buffer: &wgpu::Buffer) -> Vec<u8> {
    runner::download(&gpu.context, buffer).unwrap()
}

pub fn f32_at(buffer: &wgpu::Buffer, offset: u64, len: u64) -> TensorSlice<'_> {
    TensorSlice { buffer, offset, len, format: Format::F32 }
}

pub fn whole(buffer: &wgpu::Buffer) -> TensorSlice<'_> {
    f32_at(buffer, 0, buffer.size() / 4)
}

pub fn build(gpu: &Gpu, tensors: &[(&str, TensorSlice<'_>)]) -> Result<GradSet, Error> {
    let mut builder = GradSet::builder("adamw");
    for &(name, slice) in tensors {
        builder = builder.tensor(name, slice);
    }
    builder.build(&gpu.context)
}

pub fn limit(max_norm: f32) -> Option<ClipNorm> {
    Some(ClipNorm::new(max_norm).unwrap().with_eps(0.0).unwrap())
}

/// Records, submits and reads a step with scale 1.
pub fn clip(gpu: &Gpu, set: &GradSet, max_norm: f32) -> Report {
    let mut encoder = encoder(gpu);
    set.record(&mut encoder, LossScale::ONE, limit(max_norm)).unwrap();
    gpu.context.queue().submit([encoder.finish()]);
    set.read_report().unwrap()
}

pub fn encoder(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// The message of a set that cannot be built on a buffer of 3 and 4, which stays as it is.
pub fn refused(message: &str, tensors: impl Fn(&wgpu::Buffer) -> Vec<(&'static str, TensorSlice<'_>)>) {
    each_gpu(|gpu| {
        let buffer = upload(gpu, &[3.0, 4.0]);
        let error = build(gpu, &tensors(&buffer)).expect_err(message);
        assert_eq!(error.to_string(), message, "{}", adapters::label(&gpu.info));
        assert_eq!(bytes(gpu, &buffer), f32s(&[3.0, 4.0]));
    });
}
