//! A case made ready on the GPU: its buffers, its commands, and the copy of what they leave.

use super::cases::{Found, ScaleCase, StepCase, TensorCase};
use super::compare::{self, Difference, StepAnswer};
use crate::gpu::guard::guarded;
use crate::gpu::make::filled;
use crate::plan::PlanLimits;
use crate::report::{VERDICT_BYTES, census};
use crate::scaler::state::GpuState;
use crate::{Context, Error, Format, GradScaler, GradSet, ScalerState, TensorSlice};

/// What fills the buffer beside the tensors: NaN in every format.
const GAP: u8 = 0xff;
/// Not a multiple of anything that a kernel counts in.
const SMALL_TILE_WORDS: u32 = 61;
const SMALL_TILE_QUADS: u32 = 15;
/// A longer tensor is cut by small tiles.
const SMALL_TILE_BYTES: usize = 4 * SMALL_TILE_WORDS as usize;
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

/// How the tensors of a step lie in their buffer, and how the work is cut.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// At odd multiples of 4 bytes, in tiles as of any set.
    Words,
    /// There, in many tiles and dispatches, which needs no other kernels.
    SmallTiles,
    /// At multiples of 16 bytes and filled up to such with zeros, which change no answer, so that the kernels which take
    /// four words at a time run, in small tiles.
    Quads,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Words, Self::SmallTiles, Self::Quads];

    /// Whether the case is another one in this way.
    pub fn suits(self, case: &StepCase) -> bool {
        let mut lens = case.tensors.iter().map(|tensor| tensor.before.len());
        match self {
            Self::Words => true,
            Self::SmallTiles => lens.any(|len| len > SMALL_TILE_BYTES),
            Self::Quads => lens.any(|len| len > 0),
        }
    }

    /// The tensors of the case, and what they must become.
    fn tensors(self, case: &StepCase) -> Vec<TensorCase> {
        let mut tensors = case.tensors.clone();
        if self == Self::Quads {
            for bytes in tensors.iter_mut().flat_map(|tensor| [&mut tensor.before, &mut tensor.after]) {
                bytes.resize(bytes.len().next_multiple_of(16), 0);
            }
        }
        tensors
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Words => "",
            Self::SmallTiles => " (in small tiles)",
            Self::Quads => " (in quads)",
        }
    }
}

/// A step over tensors in one buffer.
pub(super) struct StepRun {
    case: StepCase,
    way: Way,
    places: Vec<usize>,
    arena: wgpu::Buffer,
    set: GradSet,
}

impl StepRun {
    pub fn new(context: &Context, case: &StepCase, way: Way) -> Result<Self, Error> {
        let case = StepCase { tensors: way.tensors(case), ..case.clone() };
        let places = places(&case.tensors, way);
        let arena = upload(context, &image(&case.tensors, &places, |tensor| &tensor.before))?;
        let mut builder = GradSet::builder(format!("self-test, {}", case.name));
        for (i, (tensor, &place)) in case.tensors.iter().zip(&places).enumerate() {
            let len = tensor.before.len() as u64 / tensor.format.size();
            let slice = TensorSlice { buffer: &arena, offset: place as u64, len, format: tensor.format };
            builder = builder.tensor(i.to_string(), slice);
        }
        // Given, so that no set asks for the measurement of `Context::plan_limits`.
        let mut limits = PlanLimits::from_device(context.device());
        if way != Way::Words {
            limits.tile_words = if way == Way::Quads { SMALL_TILE_QUADS * 4 } else { SMALL_TILE_WORDS };
            limits.groups_per_dimension = 3;
            limits.elements_per_dispatch = 500;
        }
        let set = builder.plan_limits(limits).build(context)?;
        Ok(Self { case, way, places, arena, set })
    }
}

impl Run for StepRun {
    fn name(&self) -> String {
        format!("step: {}{}", self.case.name, self.way.suffix())
    }

    fn bytes(&self) -> u64 {
        self.set.report().size() + self.arena.size()
    }

    fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        staging: &wgpu::Buffer,
        at: u64,
    ) -> Result<(), Error> {
        self.set.record(encoder, self.case.scale, self.case.clip)?;
        let report = self.set.report();
        encoder.copy_buffer_to_buffer(report, 0, staging, at, report.size());
        encoder.copy_buffer_to_buffer(&self.arena, 0, staging, at + report.size(), self.arena.size());
        Ok(())
    }

    fn difference(&self, bytes: &[u8]) -> Option<Difference> {
        let (report, arena) = bytes.split_at(self.set.report().size() as usize);
        let got = StepAnswer {
            verdict: bytemuck::pod_read_unaligned(&report[..VERDICT_BYTES as usize]),
            nonfinite: census(report, self.case.tensors.len()),
            arena: arena.to_vec(),
        };
        let expected = image(&self.case.tensors, &self.places, |tensor| &tensor.after);
        compare::step(&self.case, &expected, &self.places, &got)
    }
}

/// 4, 12, 20 ... bytes after the tensor before, never at a multiple of 8; or at a multiple of 16, 16 bytes after it or
/// more.
pub(super) fn places(tensors: &[TensorCase], way: Way) -> Vec<usize> {
    let mut end = 0;
    let mut places = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let place = match way {
            Way::Words | Way::SmallTiles => (end + 4 + 8 * (i % 5)) / 8 * 8 + 4,
            Way::Quads => (end + 16).next_multiple_of(16),
        };
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
        let set = |name: &str, gradient: f32| {
            let buffer = upload(context, &gradient.to_le_bytes())?;
            let slice = TensorSlice { buffer: &buffer, offset: 0, len: 1, format: Format::F32 };
            GradSet::builder(name).tensor("gradient", slice).build(context)
        };
        // The largest f32 overflows when it is divided by a scale below 1.
        Ok(Self([set("finite", 1.0)?, set("nonfinite", f32::INFINITY)?, set("overflow", f32::MAX)?]))
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
            let step = self.scaler.begin(set)?.unscale();
            // Only what would be written can overflow.
            let step = match update.found {
                Found::Overflow => step.record(encoder)?,
                Found::Finite | Found::Nonfinite => step.record_deferred(encoder)?,
            };
            self.scaler.update(encoder, [step])?;
            encoder.copy_buffer_to_buffer(self.scaler.state_buffer(), 0, staging, at, STATE_BYTES);
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
        let cases = built_in().unwrap().steps;
        for (case, way) in cases.iter().flat_map(|case| Way::ALL.map(|way| (case, way))) {
            let tensors = way.tensors(case);
            let places = places(&tensors, way);
            let mut image = image(&tensors, &places, |tensor| &tensor.before);
            let mut end = 0;
            for (tensor, &place) in tensors.iter().zip(&places) {
                let lies = if way == Way::Quads { place % 16 == 0 } else { place % 8 == 4 };
                assert!(lies && place >= end + 4, "{}", case.name);
                end = place + tensor.before.len();
                assert_eq!(image[place..end], tensor.before);
                image[place..end].fill(GAP);
            }
            assert!(image.len() >= end + 4 && image.len() % 4 == 0, "{}", case.name);
            assert!(image.iter().all(|&byte| byte == GAP), "{}", case.name);
        }
    }
}
