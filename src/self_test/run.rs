//! A case made ready on the GPU: its buffers, its commands, and the copy of what they leave.

use super::cases::{Found, ScaleCase, StepCase, TensorCase};
use super::compare::{self, Difference, StepAnswer};
use crate::context::{filled, guarded};
use crate::plan::PlanLimits;
use crate::report::{Report, VERDICT_BYTES};
use crate::scaler_state::GpuState;
use crate::{Context, Error, Format, GradScaler, GradSet, ScalerState, TensorSlice};

/// What fills the buffer beside the tensors: NaN in every format.
const GAP: u8 = 0xff;
/// Not a multiple of anything that a kernel counts in.
const SMALL_TILE_WORDS: u32 = 61;
/// A longer tensor is cut by small tiles.
pub(super) const SMALL_TILE_BYTES: usize = 4 * SMALL_TILE_WORDS as usize;
const STATE_BYTES: u64 = size_of::<GpuState>() as u64;

/// A case on its way through the GPU.
pub(super) trait Run {
    fn name(&self) -> String;
    /// What it copies back.
    fn bytes(&self) -> u64;
    /// Commands and copy, to byte `at` of `staging`.
    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        staging: &wgpu::Buffer,
        at: u64,
    ) -> Result<(), Error>;
    /// `bytes`: what was copied back.
    fn difference(&self, bytes: &[u8]) -> Option<Difference>;
}

/// A step over tensors in one buffer, at odd multiples of 4 bytes.
pub(super) struct StepRun<'a> {
    case: &'a StepCase,
    small_tiles: bool,
    places: Vec<usize>,
    arena: wgpu::Buffer,
    set: GradSet,
}

impl<'a> StepRun<'a> {
    /// With `small_tiles` the work is cut into many tiles and dispatches, which needs no other kernels.
    pub fn new(context: &Context, case: &'a StepCase, small_tiles: bool) -> Result<Self, Error> {
        let places = places(&case.tensors);
        let arena = upload(context, &image(&case.tensors, &places, |tensor| &tensor.before))?;
        let mut builder = GradSet::builder(format!("self-test, {}", case.name));
        for (i, (tensor, &place)) in case.tensors.iter().zip(&places).enumerate() {
            let len = tensor.before.len() as u64 / tensor.format.size();
            let slice = TensorSlice { buffer: &arena, offset: place as u64, len, format: tensor.format };
            builder = builder.tensor(i.to_string(), slice);
        }
        if small_tiles {
            let mut limits = PlanLimits::from_device(context.device());
            limits.tile_words = SMALL_TILE_WORDS;
            limits.groups_per_dimension = 3;
            limits.elements_per_dispatch = 500;
            builder = builder.plan_limits(limits);
        }
        let set = builder.build(context)?;
        Ok(Self { case, small_tiles, places, arena, set })
    }
}

impl Run for StepRun<'_> {
    fn name(&self) -> String {
        let how = if self.small_tiles { " (in small tiles)" } else { "" };
        format!("step: {}{how}", self.case.name)
    }

    fn bytes(&self) -> u64 {
        self.set.report.size() + self.arena.size()
    }

    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        staging: &wgpu::Buffer,
        at: u64,
    ) -> Result<(), Error> {
        self.set.record(encoder, self.case.scale, self.case.clip)?;
        let report = &self.set.report;
        encoder.copy_buffer_to_buffer(report, 0, staging, at, report.size());
        encoder.copy_buffer_to_buffer(&self.arena, 0, staging, at + report.size(), self.arena.size());
        Ok(())
    }

    fn difference(&self, bytes: &[u8]) -> Option<Difference> {
        let (report, arena) = bytes.split_at(self.set.report.size() as usize);
        let got = StepAnswer {
            verdict: bytemuck::pod_read_unaligned(&report[..VERDICT_BYTES as usize]),
            nonfinite: Report::decode(report, &self.set.tensors).nonfinite,
            arena: arena.to_vec(),
        };
        let expected = image(&self.case.tensors, &self.places, |tensor| &tensor.after);
        compare::step(self.case, &expected, &self.places, &got)
    }
}

/// 4, 12, 20 ... bytes after the tensor before, never at a multiple of 8.
pub(super) fn places(tensors: &[TensorCase]) -> Vec<usize> {
    let mut end = 0;
    let mut places = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let place = (end + 4 + 8 * (i % 5)) / 8 * 8 + 4;
        end = place + tensor.before.len().next_multiple_of(4);
        places.push(place);
    }
    places
}

/// The buffer, with a gap before, between and after the tensors.
pub(super) fn image(
    tensors: &[TensorCase],
    places: &[usize],
    bytes: impl Fn(&TensorCase) -> &[u8],
) -> Vec<u8> {
    let end = tensors.last().zip(places.last()).map_or(0, |(tensor, place)| place + tensor.before.len());
    let mut image = vec![GAP; end.next_multiple_of(4) + 12];
    for (tensor, &place) in tensors.iter().zip(places) {
        image[place..place + tensor.before.len()].copy_from_slice(bytes(tensor));
    }
    image
}

fn upload(context: &Context, bytes: &[u8]) -> Result<wgpu::Buffer, Error> {
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
    guarded(context.device(), "self-test: allocating gradients", || {
        filled(&context.shared, "gradclip self-test", usage, bytes)
    })
}

/// What steps of the sequences find. Nothing is written to them, so all sequences share them.
pub(super) struct Findings([GradSet; 3]);

impl Findings {
    pub fn new(context: &Context) -> Result<Self, Error> {
        let set = |gradient: f32| {
            let buffer = upload(context, &gradient.to_le_bytes())?;
            let slice = TensorSlice { buffer: &buffer, offset: 0, len: 1, format: Format::F32 };
            GradSet::builder("self-test").tensor("gradient", slice).build(context)
        };
        // The largest f32 overflows when it is divided by a scale below 1.
        Ok(Self([set(1.0)?, set(f32::INFINITY)?, set(f32::MAX)?]))
    }

    fn of(&self, found: Found) -> &GradSet {
        let [finite, nonfinite, overflow] = &self.0;
        match found {
            Found::Finite => finite,
            Found::Nonfinite => nonfinite,
            Found::Overflow => overflow,
        }
    }
}

/// A sequence of updates of a scaler of its own.
pub(super) struct ScaleRun<'a> {
    case: &'a ScaleCase,
    findings: &'a Findings,
    scaler: GradScaler,
}

impl<'a> ScaleRun<'a> {
    pub fn new(context: &Context, case: &'a ScaleCase, findings: &'a Findings) -> Result<Self, Error> {
        let scaler = GradScaler::new(context, case.config)?;
        scaler.load_state_dict(&case.start())?;
        Ok(Self { case, findings, scaler })
    }
}

impl Run for ScaleRun<'_> {
    fn name(&self) -> String {
        format!("scale: {}", self.case.name)
    }

    fn bytes(&self) -> u64 {
        self.case.updates.len() as u64 * STATE_BYTES
    }

    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        staging: &wgpu::Buffer,
        at: u64,
    ) -> Result<(), Error> {
        for (update, at) in self.case.updates.iter().zip((at..).step_by(STATE_BYTES as usize)) {
            let set = self.findings.of(update.found);
            let step = self.scaler.begin(set)?.unscale().record_deferred(encoder)?;
            self.scaler.update(encoder, [step])?;
            encoder.copy_buffer_to_buffer(&self.scaler.state, 0, staging, at, STATE_BYTES);
        }
        Ok(())
    }

    fn difference(&self, bytes: &[u8]) -> Option<Difference> {
        let states = bytes.chunks_exact(STATE_BYTES as usize);
        let got: Vec<ScalerState> =
            states.map(|state| ScalerState::from_gpu(bytemuck::pod_read_unaligned(state))).collect();
        compare::scale(self.case, &got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::cases::built_in;

    /// So that a kernel which reads or writes too far meets NaN that must not change.
    #[test]
    fn there_is_a_gap_before_between_and_after_the_tensors() {
        for case in built_in().unwrap().steps {
            let places = places(&case.tensors);
            let mut image = image(&case.tensors, &places, |tensor| &tensor.before);
            let mut end = 0;
            for (tensor, &place) in case.tensors.iter().zip(&places) {
                assert!(place % 8 == 4 && place >= end + 4, "{}", case.name);
                end = place + tensor.before.len();
                assert_eq!(image[place..end], tensor.before);
                image[place..end].fill(GAP);
            }
            assert!(image.len() >= end + 4 && image.len() % 4 == 0, "{}", case.name);
            assert!(image.iter().all(|&byte| byte == GAP), "{}", case.name);
        }
    }
}
