//! Where the kernels read and write: tensors and limits in, windows, tiles and dispatches out. No wgpu calls, so all
//! of it is tested without a driver.
//!
//! A **window** is a range of a buffer that is bound at once. A **segment** is the part of one tensor that one dispatch
//! reaches through one window, and it is cut into **tiles**, one a workgroup. The result of a step does not depend on
//! any of these cuts.

mod layout;
mod limits;
mod tuning;
mod windows;

pub(crate) use layout::{check_names, check_set, lay_out};
pub use limits::PlanLimits;
pub(crate) use tuning::Tuning;

use windows::{Piece, cut_windows};

use crate::{Error, Format, Role};

/// Words of the table that describe one segment: slot, first word in the window, elements, first tile, tensor, and
/// the index of the first element in the tensor (low and high word).
pub const SEGMENT_WORDS: usize = 7;
/// Shorter ragged tensors than this are read word by word whole, and not as quads and a rest.
const RAGGED_WORDS: u64 = 16_384;
/// Bytes that one tile leaves for `norm_finish`.
pub const PARTIAL_BYTES: u64 = 40;
/// The largest tile: 32 blocks of 4096 words. The digit sums of its elements (two a word, 22 bits each) fit 40 bits, and
/// those of one thread 32.
pub const MAX_TILE_WORDS: u32 = 131_072;
/// More windows than this a dispatch gain nothing and make pipelines slow to compile.
pub const MAX_WINDOWS: u32 = 16;
/// Storage buffers that the kernels bind for themselves beside the windows.
pub const OWN_STORAGE_BUFFERS: u32 = 2;
/// Classes of tiles: the formats, each in every role.
pub const CLASSES: usize = Format::ALL.len() * Role::ALL.len();
/// A set holds fewer elements than this, so that its sum of squares fits 128 bits.
pub const MAX_ELEMENTS: u64 = 1 << 39;
/// One tensor as the planner sees it. The caller has checked offset, size and overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PlanTensor {
    /// Which buffer, as the caller numbers them.
    pub buffer: usize,
    /// First byte in that buffer, a multiple of 4.
    pub offset: u64,
    /// Elements.
    pub len: u64,
    /// How they are stored.
    pub format: Format,
    /// What a step does with them.
    pub role: Role,
}

impl PlanTensor {
    /// A tensor that is counted in the norm and scaled.
    #[must_use]
    pub fn new(buffer: usize, offset: u64, len: u64, format: Format) -> Self {
        Self { buffer, offset, len, format, role: Role::default() }
    }

    /// The same with another role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// One past the last byte that belongs to the tensor's words.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.format.words(self.len).saturating_mul(4))
    }
}

/// A range of a buffer that is bound at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// Which buffer, as the caller numbers them.
    pub buffer: usize,
    /// First byte, aligned for binding.
    pub offset: u64,
    /// Bytes, a multiple of 4, never 0.
    pub size: u64,
}

/// The part of a tensor that one dispatch reaches through one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Which tensor, in the caller's order.
    pub tensor: usize,
    /// Position of the window in the dispatch.
    pub slot: u32,
    /// First word, counted from the start of the window.
    pub word: u32,
    /// Elements.
    pub len: u32,
    /// Index in the tensor of the first element.
    pub element: u64,
    /// First tile, counted over the whole plan.
    pub first_tile: u32,
    /// Tiles.
    pub tiles: u32,
}

/// How the kernels of a dispatch read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Four words at a time, which some devices do in half the time. Every segment starts at a multiple of 16 bytes and
    /// consists of such.
    Quads,
    /// Word by word: tensors at other offsets, and up to three words at the end of a tensor.
    Words,
}

impl Access {
    /// In the order of dispatches.
    pub const ALL: [Self; 2] = [Self::Quads, Self::Words];
}

/// One `dispatch_workgroups` call of each kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dispatch {
    /// The format of all its segments.
    pub format: Format,
    /// What a step does with them.
    pub role: Role,
    /// How they are read and written.
    pub access: Access,
    /// Indices into [`Plan::windows`]; the position is the slot.
    pub windows: Vec<usize>,
    /// First tile, counted over the whole plan.
    pub first_tile: u32,
    /// Tiles.
    pub tiles: u32,
    /// Workgroups along x and y; those beyond `tiles` do nothing.
    pub groups: (u32, u32),
}

/// What a set of tensors compiles to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Every range that is bound. Two windows of one buffer never overlap.
    pub windows: Vec<Window>,
    /// All segments, by rising tile.
    pub segments: Vec<Segment>,
    /// All dispatches, f32 before f16 before bf16, of a format by role, and of these quads before words.
    pub dispatches: Vec<Dispatch>,
    /// Tiles in all.
    pub tiles: u32,
    /// Where the classes of tiles start, each a role of a format, in the order of dispatches; the first starts at 0.
    pub class_starts: [u32; CLASSES - 1],
    /// Words of a full tile.
    pub tile_words: u32,
}

impl Plan {
    /// Cuts `tensors` to fit `limits`.
    ///
    /// # Errors
    /// [`Error::ZeroLimit`] if a limit leaves room for nothing, [`Error::TooManyElements`] from 2^39 elements on.
    pub fn new(tensors: &[PlanTensor], limits: &PlanLimits) -> Result<Self, Error> {
        let limits = limits.check()?;
        let elements = tensors.iter().fold(0u64, |sum, t| sum.saturating_add(t.len));
        if elements >= MAX_ELEMENTS {
            return Err(Error::TooManyElements { elements });
        }
        let (windows, pieces) = cut_windows(tensors, &limits);
        let mut plan = Self {
            windows,
            segments: Vec::new(),
            dispatches: Vec::new(),
            tiles: 0,
            class_starts: [0; CLASSES - 1],
            tile_words: limits.tile_words,
        };
        let classes = Format::ALL.into_iter().flat_map(|format| Role::ALL.map(|role| (format, role)));
        for (i, (format, role)) in classes.enumerate() {
            for access in Access::ALL {
                let class = pieces.iter().filter(|p| {
                    let tensor = &tensors[p.tensor];
                    (tensor.format, tensor.role) == (format, role)
                });
                let parts = class.filter_map(|p| p.part(&tensors[p.tensor], access, &limits));
                plan.pack(&parts.collect::<Vec<_>>(), (format, role, access), &limits)?;
            }
            if let Some(start) = plan.class_starts.get_mut(i) {
                *start = plan.tiles;
            }
        }
        Ok(plan)
    }

    /// Fills dispatches of one format and access, cutting a piece where a dispatch is full.
    fn pack(
        &mut self,
        pieces: &[Piece],
        (format, role, access): (Format, Role, Access),
        limits: &PlanLimits,
    ) -> Result<(), Error> {
        let tile_words = u64::from(limits.tile_words);
        let groups = u64::from(limits.groups_per_dimension);
        let most_tiles = (limits.elements_per_dispatch / (tile_words * format.per_word()))
            .clamp(1, groups.saturating_mul(groups).min(u64::from(u32::MAX)));
        let mut window_words = vec![0; self.windows.len()];
        for piece in pieces {
            window_words[piece.window] += piece.words;
        }
        let lone = |window: usize| window_words[window] / tile_words >= limits.lone_window_tiles;
        let first = self.dispatches.len();
        for piece in pieces {
            let mut done = 0;
            while done < piece.words {
                let open = self.dispatches[first..].last().is_some_and(|last| {
                    let joins = !lone(piece.window)
                        && !last.windows.iter().any(|&w| lone(w))
                        && last.windows.len() < limits.windows_per_dispatch as usize;
                    u64::from(last.tiles) < most_tiles && (joins || last.windows.contains(&piece.window))
                });
                if !open {
                    self.dispatches.push(Dispatch {
                        format,
                        role,
                        access,
                        windows: Vec::new(),
                        first_tile: self.tiles,
                        tiles: 0,
                        groups: (0, 0),
                    });
                }
                let Some(dispatch) = self.dispatches.last_mut() else { break };
                let slot = dispatch.windows.iter().position(|&w| w == piece.window);
                let slot = slot.unwrap_or_else(|| {
                    dispatch.windows.push(piece.window);
                    dispatch.windows.len() - 1
                });
                let room = most_tiles - u64::from(dispatch.tiles);
                let words = (piece.words - done).min(room * tile_words);
                let skipped = done * format.per_word();
                let len = (piece.len - skipped).min(words * format.per_word());
                let tiles = words.div_ceil(tile_words);
                let too_many = Error::TooManyTiles { tile_words: limits.tile_words };
                let all = u64::from(self.tiles) + tiles;
                let all = u32::try_from(all).ok().filter(|&n| n < u32::MAX).ok_or(too_many)?;
                self.segments.push(Segment {
                    tensor: piece.tensor,
                    // A window is below 2^31 bytes, so what lies inside one fits u32.
                    slot: slot as u32,
                    word: (piece.word + done) as u32,
                    len: len as u32,
                    element: piece.element + skipped,
                    first_tile: self.tiles,
                    tiles: tiles as u32,
                });
                self.tiles = all;
                dispatch.tiles += tiles as u32;
                done += words;
            }
        }
        for dispatch in &mut self.dispatches[first..] {
            let x = dispatch.tiles.min(limits.groups_per_dimension);
            dispatch.groups = (x, dispatch.tiles.div_ceil(x));
        }
        Ok(())
    }

    /// The table that the kernels read: [`SEGMENT_WORDS`] words a segment, then for each tile the index of its segment.
    /// Never empty, since a binding cannot be.
    #[must_use]
    pub fn table(&self) -> Vec<u32> {
        let mut table = Vec::with_capacity(self.tiles_at() as usize + self.tiles as usize + 1);
        for s in &self.segments {
            let (low, high) = (s.element as u32, (s.element >> 32) as u32);
            table.extend([s.slot, s.word, s.len, s.first_tile, s.tensor as u32, low, high]);
        }
        for (i, s) in self.segments.iter().enumerate() {
            table.extend(std::iter::repeat_n(i as u32, s.tiles as usize));
        }
        if table.is_empty() {
            table.push(0);
        }
        table
    }

    /// Where in [`Plan::table`] the segments of the tiles are listed.
    #[must_use]
    pub fn tiles_at(&self) -> u32 {
        (self.segments.len() * SEGMENT_WORDS) as u32
    }
}
