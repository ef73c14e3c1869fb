//! The same gradients cut into pieces, put in another order, moved into other buffers, with other limits of the plan.

use std::ops::Range;

use gradclip::plan::PlanLimits;
use gradclip::{ClipNorm, Context, Format, GradSet, LossScale, Nonfinite, TensorSlice, wgpu};
use proptest::prelude::*;

use super::common::cases::{Answer, Input};
use super::common::limit::Limit;
use super::common::runner::{download, upload};
use super::inputs::Lcg;

/// What fills the gaps: NaN in every format.
const GAP: u8 = 0xff;
/// Every number of windows and format is a pipeline of its own, and the GL adapter takes seconds for each.
const MOST_WINDOWS: u32 = 3;

/// How to cut; [`Arrangement::cut`] does it.
#[derive(Debug, Clone)]
pub struct Cutting {
    seed: u64,
    pieces: u32,
    buffers: u32,
    /// Cuts, places and tiles are multiples of so many words: 4 lets the kernels take four at a time.
    grain: u32,
    tile_words: u32,
    window_units: u64,
    windows: u32,
    groups: u32,
    elements: u64,
    lone_window_tiles: u64,
}

pub fn cuttings() -> impl Strategy<Value = Cutting> {
    let tile_words = prop_oneof![1..60u32, 1..5000u32];
    let elements = prop_oneof![200..1000u64, 200..10_000u64];
    let lone = prop_oneof![Just(0u64), Just(4), Just(u64::MAX)];
    let grain = prop_oneof![Just(1u32), Just(4)];
    (
        any::<u64>(),
        (1..5u32, 1..4u32),
        (grain, tile_words),
        1..20u64,
        1..=MOST_WINDOWS,
        1..9u32,
        elements,
        lone,
    )
        .prop_map(
            |(
                seed,
                (pieces, buffers),
                (grain, tile_words),
                window_units,
                windows,
                groups,
                elements,
                lone_window_tiles,
            )| {
                Cutting {
                    seed,
                    pieces,
                    buffers,
                    grain,
                    tile_words: tile_words * grain,
                    window_units,
                    windows,
                    groups,
                    elements,
                    lone_window_tiles,
                }
            },
        )
}

impl Cutting {
    /// The same, with every tensor in one piece.
    pub fn of_whole_tensors(&self) -> Self {
        Self { pieces: 1, ..self.clone() }
    }
}

/// Elements of a tensor, and where they lie.
struct Piece {
    tensor: usize,
    elements: Range<u64>,
    buffer: usize,
    offset: usize,
}

pub struct Arrangement {
    pieces: Vec<Piece>,
    cutting: Option<Cutting>,
}

impl Arrangement {
    /// A buffer for each tensor, in order, with the limits of the device.
    pub fn whole(input: &Input) -> Self {
        let piece = |(tensor, &(format, ref bytes)): (usize, &(Format, Vec<u8>))| Piece {
            tensor,
            elements: 0..bytes.len() as u64 / format.size(),
            buffer: tensor,
            offset: 0,
        };
        Self { pieces: input.tensors.iter().enumerate().map(piece).collect(), cutting: None }
    }

    /// Cut at words, since a slice starts at one; shuffled; with gaps.
    pub fn cut(input: &Input, cutting: &Cutting) -> Self {
        let mut random = Lcg(cutting.seed);
        let mut pieces = Vec::new();
        for (tensor, (format, bytes)) in input.tensors.iter().enumerate() {
            let len = bytes.len() as u64 / format.size();
            let grains = format.words(len) as u32 / cutting.grain;
            let grain = format.per_word() * u64::from(cutting.grain);
            let mut cuts: Vec<u64> =
                (1..cutting.pieces).map(|_| grain * u64::from(random.below(grains + 1))).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            pieces.extend(cuts.windows(2).map(|pair| Piece {
                tensor,
                elements: pair[0].min(len)..pair[1].min(len),
                buffer: random.below(cutting.buffers) as usize,
                offset: 0,
            }));
        }
        for left in (1..pieces.len()).rev() {
            pieces.swap(left, random.below(left as u32 + 1) as usize);
        }
        let mut ends = vec![0usize; cutting.buffers as usize];
        for piece in &mut pieces {
            let end = &mut ends[piece.buffer];
            let grain = 4 * cutting.grain as usize;
            piece.offset = end.next_multiple_of(grain) + grain * random.below(5) as usize;
            let len = piece.elements.end - piece.elements.start;
            *end = piece.offset + 4 * input.tensors[piece.tensor].0.words(len) as usize;
        }
        Self { pieces, cutting: Some(cutting.clone()) }
    }

    fn limits(&self, gpu: &Context) -> PlanLimits {
        let mut limits = PlanLimits::from_device(gpu.device());
        limits.windows_per_dispatch = MOST_WINDOWS;
        if let Some(cutting) = &self.cutting {
            limits.window_bytes = limits.window_align.max(256) * cutting.window_units;
            limits.windows_per_dispatch = cutting.windows;
            limits.groups_per_dimension = cutting.groups;
            limits.elements_per_dispatch = cutting.elements;
            limits.tile_words = cutting.tile_words;
            limits.lone_window_tiles = cutting.lone_window_tiles;
        }
        limits
    }
}

/// The gradients on a GPU.
pub struct Placed<'a> {
    gpu: &'a Context,
    input: &'a Input,
    arrangement: &'a Arrangement,
    buffers: Vec<wgpu::Buffer>,
    set: GradSet,
}

impl<'a> Placed<'a> {
    pub fn new(gpu: &'a Context, input: &'a Input, arrangement: &'a Arrangement) -> Self {
        let pieces = &arrangement.pieces;
        let count = pieces.iter().map(|p| p.buffer + 1).max().unwrap_or(0);
        let mut images = vec![vec![GAP; 4]; count];
        for piece in pieces {
            let (image, bytes) = (&mut images[piece.buffer], piece.bytes(input));
            let end = piece.offset + bytes.len();
            image.resize(image.len().max(end.next_multiple_of(4)), GAP);
            image[piece.offset..end].copy_from_slice(bytes);
        }
        let buffers: Vec<wgpu::Buffer> = images.iter().map(|image| upload(gpu, image)).collect();
        let mut builder = GradSet::builder("random").plan_limits(arrangement.limits(gpu));
        for (i, piece) in pieces.iter().enumerate() {
            let slice = TensorSlice {
                buffer: &buffers[piece.buffer],
                offset: piece.offset as u64,
                len: piece.elements.end - piece.elements.start,
                format: input.tensors[piece.tensor].0,
            };
            builder = builder.tensor(format!("piece {i}"), slice);
        }
        let set = builder.build(gpu).unwrap();
        Self { gpu, input, arrangement, buffers, set }
    }

    /// One step on what the buffers hold, and its answer in terms of the whole tensors.
    pub fn step(&self, scale: LossScale, clip: Option<ClipNorm>) -> Answer {
        self.limited(scale, Limit::Norm(clip))
    }

    /// [`Placed::step`] with any limit. Tensors that are limited one by one must be in one piece each.
    pub fn limited(&self, scale: LossScale, limit: Limit) -> Answer {
        let mut encoder =
            self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        limit.record(&self.set, &mut encoder, scale).unwrap();
        self.gpu.queue().submit([encoder.finish()]);
        let report = self.set.read_report().unwrap();
        let mut images: Vec<Vec<u8>> =
            self.buffers.iter().map(|buffer| download(self.gpu, buffer).unwrap()).collect();
        let mut tensors: Vec<Vec<u8>> = self.input.tensors.iter().map(|t| vec![0; t.1.len()]).collect();
        let mut nonfinite = vec![Nonfinite::default(); tensors.len()];
        for (i, piece) in self.arrangement.pieces.iter().enumerate() {
            let found = report.nonfinite_in(&format!("piece {i}"));
            let range = piece.range(self.input);
            let place = piece.offset..piece.offset + range.len();
            let image = &mut images[piece.buffer][place];
            tensors[piece.tensor][range].copy_from_slice(image);
            image.fill(GAP);
            let sum = &mut nonfinite[piece.tensor];
            let first = found.first.map(|first| piece.elements.start + first);
            *sum = Nonfinite {
                nan: sum.nan + found.nan,
                pos_inf: sum.pos_inf + found.pos_inf,
                neg_inf: sum.neg_inf + found.neg_inf,
                first: sum.first.into_iter().chain(first).min(),
            };
        }
        assert!(images.iter().flatten().all(|&byte| byte == GAP), "bytes outside the tensors changed");
        let clips = limit.read_each(&self.set).unwrap();
        let mut each: Vec<_> = self.arrangement.pieces.iter().map(|p| p.tensor).zip(clips).collect();
        each.sort_by_key(|&(tensor, _)| tensor);
        assert!(each.is_empty() || each.len() == tensors.len(), "a piece is not a tensor");
        Answer {
            found_inf: report.found_inf,
            overflow: report.overflow,
            norm: report.total_norm.unwrap_or(0.0),
            coefficient: report.coefficient.unwrap_or(0.0),
            factor: report.factor.unwrap_or(0.0),
            nonfinite,
            tensors,
            each: each.into_iter().map(|(_, clip)| clip).collect(),
        }
    }
}

impl Piece {
    /// Its bytes in the tensor.
    fn range(&self, input: &Input) -> Range<usize> {
        let size = input.tensors[self.tensor].0.size();
        (self.elements.start * size) as usize..(self.elements.end * size) as usize
    }

    fn bytes<'a>(&self, input: &'a Input) -> &'a [u8] {
        &input.tensors[self.tensor].1[self.range(input)]
    }
}
