//! What a step is told, in a buffer.

use std::sync::PoisonError;

use crate::clip::Clip;
use crate::gpu::context::{filled, group, guarded};
use crate::{ClipNorm, Error, Format, GradScaler, GradSet, Ledger, LossScale, NormType};

/// Step parameters kept for reuse. Training has one limit and few scales; a schedule moves through them in order.
const KEPT_STEPS: usize = 16;
/// Of the parameters of one: limits at the start, the scale (or the merged ledger) 256 bytes later.
pub(crate) const STEP_BYTES: u64 = 512;
const SECOND_AT: u64 = 256;

/// Scaler (0: none), the bits of the scale, and the limit.
pub(crate) type StepKey = (u64, u32, LimitUniform);

/// Where the loss scale comes from.
#[derive(Clone, Copy)]
pub(crate) enum ScaleSource<'a> {
    Value(LossScale),
    Scaler(&'a GradScaler),
}

/// The twin of `struct Limit` in `limit.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct LimitUniform {
    max_norm: u32,
    eps: u32,
    skip_above: u32,
    norm_type: u32,
    scope: u32,
    clip_f32: u32,
    clip_f16: u32,
    clip_bf16: u32,
    ticket: u32,
}

/// The twin of `struct Merged` in `norm_merged.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct MergedUniform {
    scale: u32,
    nonfinite: u32,
    overflow: u32,
    norm_significand: u32,
    norm_exponent: i32,
}

impl LimitUniform {
    fn new(clip: Clip, skip_above: Option<f32>) -> Self {
        let (scope, norm) = match clip {
            Clip::Norm(norm) => (0, norm),
            Clip::EachTensor(norm) => (1, Some(norm)),
            Clip::Value(_) => (2, None),
        };
        let (max_norm, eps) = norm.map_or((f32::INFINITY, 0.0), |c| (c.max_norm(), c.eps()));
        let [clip_f32, clip_f16, clip_bf16] = Format::ALL.map(|format| match clip {
            Clip::Value(value) => value.within(format).to_bits(),
            _ => f32::INFINITY.to_bits(),
        });
        Self {
            max_norm: max_norm.to_bits(),
            eps: eps.to_bits(),
            skip_above: skip_above.unwrap_or(f32::INFINITY).to_bits(),
            norm_type: match clip.norm_type() {
                NormType::Linf => 0,
                NormType::L1 => 1,
                NormType::L2 => 2,
            },
            scope,
            clip_f32,
            clip_f16,
            clip_bf16,
            ticket: 0,
        }
    }
}

impl GradSet {
    /// Parameters travel in a buffer that is written once and never again, so that two steps in one encoder, or two
    /// encoders submitted in any order, cannot see each other's.
    pub(crate) fn step_group(
        &self,
        scale: ScaleSource<'_>,
        clip: Clip,
        skip_above: Option<f32>,
    ) -> Result<wgpu::BindGroup, Error> {
        let limit = LimitUniform::new(clip, skip_above);
        let key = match scale {
            ScaleSource::Value(scale) => (0, scale.get().to_bits(), limit),
            ScaleSource::Scaler(scaler) => (scaler.id, 0, limit),
        };
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, group)) = steps.iter().find(|(k, _)| *k == key) {
            return Ok(group.clone());
        }
        let group = self.scaled_group(&limit, scale)?;
        if steps.len() == KEPT_STEPS {
            steps.pop_front();
        }
        steps.push_back((key, group.clone()));
        Ok(group)
    }

    /// The parameters of the first half of a sharded step. Not kept: each has a ticket of its own.
    pub(crate) fn ledger_group(
        &self,
        scale: ScaleSource<'_>,
        clip: Option<ClipNorm>,
        ticket: u32,
    ) -> Result<wgpu::BindGroup, Error> {
        self.scaled_group(&LimitUniform { ticket, ..LimitUniform::new(Clip::Norm(clip), None) }, scale)
    }

    fn scaled_group(&self, limit: &LimitUniform, scale: ScaleSource<'_>) -> Result<wgpu::BindGroup, Error> {
        match scale {
            ScaleSource::Value(scale) => self.new_step_group(limit, &[scale.get().to_bits(), 0, 0, 0], None),
            ScaleSource::Scaler(scaler) => self.new_step_group(limit, &[0; 4], Some(scaler.scale_buffer())),
        }
    }

    /// The parameters of the second half. Not kept: no two ledgers are the same.
    pub(crate) fn merged_group(
        &self,
        merged: &Ledger,
        clip: Option<ClipNorm>,
        skip_above: Option<f32>,
    ) -> Result<wgpu::BindGroup, Error> {
        let norm = merged.norm_scaled();
        let words = MergedUniform {
            scale: merged.scale().to_bits(),
            nonfinite: u32::from(merged.found_inf()),
            overflow: u32::from(merged.overflowing() > 0),
            norm_significand: norm.significand,
            norm_exponent: norm.exponent,
        };
        let limit = LimitUniform::new(Clip::Norm(clip), skip_above);
        self.new_step_group(&limit, bytemuck::cast_slice(&[words]), None)
    }

    /// `second`: what the second binding holds, unless `elsewhere` does.
    fn new_step_group(
        &self,
        limit: &LimitUniform,
        second: &[u32],
        elsewhere: Option<wgpu::BufferBinding<'_>>,
    ) -> Result<wgpu::BindGroup, Error> {
        let shared = &self.context.shared;
        let what = format!("set \"{}\": step parameters", self.name);
        guarded(&shared.device, &what, || {
            let mut bytes = [0u8; STEP_BYTES as usize];
            bytes[..size_of::<LimitUniform>()].copy_from_slice(bytemuck::bytes_of(limit));
            let second: &[u8] = bytemuck::cast_slice(second);
            bytes[SECOND_AT as usize..][..second.len()].copy_from_slice(second);
            let buffer = filled(shared, "gradclip step", wgpu::BufferUsages::UNIFORM, &bytes);
            let part = |offset, size: usize| wgpu::BufferBinding {
                buffer: &buffer,
                offset,
                // Uniform structs are padded to 16 bytes.
                size: wgpu::BufferSize::new(size.next_multiple_of(16) as u64),
            };
            let first = part(0, size_of::<LimitUniform>());
            let second = elsewhere.unwrap_or(part(SECOND_AT, second.len()));
            let resources = [first, second].map(wgpu::BindingResource::Buffer);
            group(shared, &shared.layouts.step, &resources)
        })
    }
}
