//! Where the kernels read and write: tensors and limits in, windows, tiles and dispatches out. No wgpu calls, so all
//! of it is tested without a driver.
//!
//! A **window** is a range of a buffer that is bound at once. A **segment** is the part of one tensor that one dispatch
//! reaches through one window, and it is cut into **tiles**, one a workgroup. The result of a step does not depend on
//! any of these cuts.

mod layout;
mod tuning;

pub(crate) use layout::{check_names, check_set, lay_out};
pub(crate) use tuning::Tuning;

use crate::{Error, Format};

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
/// A set holds fewer elements than this, so that its sum of squares fits 128 bits.
pub const MAX_ELEMENTS: u64 = 1 << 39;
/// Native backends end a binding at 2^31 - 1 bytes, and Metal's `arrayLength` wraps at 2^32.
const MAX_WINDOW_BYTES: u64 = (1 << 31) - 1;

/// What a plan must keep to. [`Context::plan_limits`](crate::Context::plan_limits) is right for every engine; smaller
/// numbers make smaller dispatches and change no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanLimits {
    /// Largest binding in bytes. Rounded down to a multiple of `window_align`, and capped below 2^31.
    pub window_bytes: u64,
    /// Alignment of a binding's offset in bytes.
    pub window_align: u64,
    /// Windows bound in one dispatch.
    pub windows_per_dispatch: u32,
    /// Workgroups along one dimension of a dispatch; a second dimension is used beyond that.
    pub groups_per_dimension: u32,
    /// Elements that one dispatch covers at most (never less than one tile), so that no dispatch runs into a watchdog.
    pub elements_per_dispatch: u64,
    /// 32-bit words that one workgroup reads, at most 131072.
    pub tile_words: u32,
    /// A window with at least this many full tiles gets dispatches of its own, whose kernels need not choose a window.
    pub lone_window_tiles: u64,
}

impl PlanLimits {
    /// The limits of a device (not the adapter's: the device may have been made with less).
    #[must_use]
    pub fn from_device(device: &wgpu::Device) -> Self {
        Self::from_limits(&device.limits())
    }

    /// What every WebGPU device offers: 128 MiB a binding at multiples of 256 bytes, 8 storage buffers, 65535
    /// workgroups.
    #[must_use]
    pub fn webgpu() -> Self {
        Self::from_limits(&wgpu::Limits::default())
    }

    fn from_limits(limits: &wgpu::Limits) -> Self {
        Self {
            window_bytes: limits.max_storage_buffer_binding_size,
            window_align: u64::from(limits.min_storage_buffer_offset_alignment),
            // One less than the device reports: Metal keeps a slot for itself.
            windows_per_dispatch: limits
                .max_storage_buffers_per_shader_stage
                .saturating_sub(OWN_STORAGE_BUFFERS + 1)
                .min(MAX_WINDOWS),
            groups_per_dimension: limits.max_compute_workgroups_per_dimension,
            elements_per_dispatch: 1 << 28,
            tile_words: 16_384,
            lone_window_tiles: 4096,
        }
    }

    fn check(&self) -> Result<Self, Error> {
        // A word is bound whole.
        let window_align = self.window_align.div_ceil(4).max(1).saturating_mul(4);
        let window_bytes = self.window_bytes.min(MAX_WINDOW_BYTES) / window_align * window_align;
        for (name, value) in [
            ("window_bytes", window_bytes),
            ("windows_per_dispatch", u64::from(self.windows_per_dispatch)),
            ("groups_per_dimension", u64::from(self.groups_per_dimension)),
            ("elements_per_dispatch", self.elements_per_dispatch),
            ("tile_words", u64::from(self.tile_words)),
        ] {
            if value == 0 {
                return Err(Error::ZeroLimit { limit: name });
            }
        }
        Ok(Self {
            window_bytes,
            window_align,
            tile_words: self.tile_words.min(MAX_TILE_WORDS),
            windows_per_dispatch: self.windows_per_dispatch.min(MAX_WINDOWS),
            // The kernels number workgroups in 32 bits.
            groups_per_dimension: self.groups_per_dimension.min(65_535),
            ..*self
        })
    }
}

/// One tensor as the planner sees it. The caller has checked offset, size and overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanTensor {
    /// Which buffer, as the caller numbers them.
    pub buffer: usize,
    /// First byte in that buffer, a multiple of 4.
    pub offset: u64,
    /// Elements.
    pub len: u64,
    /// How they are stored.
    pub format: Format,
}

impl PlanTensor {
    /// One past the last byte that belongs to the tensor's words.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.format.words(self.len).saturating_mul(4))
    }
}

/// A range of a buffer that is bound at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
pub struct Dispatch {
    /// The format of all its segments.
    pub format: Format,
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
pub struct Plan {
    /// Every range that is bound. Two windows of one buffer never overlap.
    pub windows: Vec<Window>,
    /// All segments, by rising tile.
    pub segments: Vec<Segment>,
    /// All dispatches, f32 before f16 before bf16, and of a format quads before words.
    pub dispatches: Vec<Dispatch>,
    /// Tiles in all.
    pub tiles: u32,
    /// First tile that is not f32, and first that is bf16.
    pub format_starts: [u32; 2],
    /// Words of a full tile.
    pub tile_words: u32,
}

/// A piece of a tensor inside one window.
#[derive(Clone, Copy)]
struct Piece {
    tensor: usize,
    window: usize,
    word: u64,
    words: u64,
    element: u64,
    len: u64,
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
            format_starts: [0; 2],
            tile_words: limits.tile_words,
        };
        for (i, format) in Format::ALL.into_iter().enumerate() {
            for access in Access::ALL {
                let of_format = pieces.iter().filter(|p| tensors[p.tensor].format == format);
                let parts = of_format.filter_map(|p| p.part(&tensors[p.tensor], access, &limits));
                plan.pack(&parts.collect::<Vec<_>>(), (format, access), &limits)?;
            }
            if let Some(start) = plan.format_starts.get_mut(i) {
                *start = plan.tiles;
            }
        }
        Ok(plan)
    }

    /// Fills dispatches of one format and access, cutting a piece where a dispatch is full.
    fn pack(
        &mut self,
        pieces: &[Piece],
        (format, access): (Format, Access),
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

impl Piece {
    /// What of the piece is reached in one way. A tensor's quads come before its rest, so that its tiles rise with its
    /// elements.
    fn part(&self, tensor: &PlanTensor, access: Access, limits: &PlanLimits) -> Option<Self> {
        let per_word = tensor.format.per_word();
        // Windows start at multiples of `window_align`, and go on where another ended.
        let aligned = tensor.offset.is_multiple_of(16)
            && limits.window_align.is_multiple_of(16)
            && limits.tile_words.is_multiple_of(4);
        // A word with half an element is no whole one.
        let quads = if aligned { self.len / per_word / 4 * 4 } else { 0 };
        let ragged = quads < self.words && tensor.format.words(tensor.len) < RAGGED_WORDS;
        let quads = if ragged { 0 } else { quads };
        let part = match access {
            Access::Quads => Self { words: quads, len: self.len.min(quads * per_word), ..*self },
            Access::Words => Self {
                word: self.word + quads,
                words: self.words - quads,
                element: self.element + quads * per_word,
                len: self.len - quads * per_word,
                ..*self
            },
        };
        (part.words > 0).then_some(part)
    }
}

/// Covers each buffer's tensors with windows from its lowest offset up, cutting a tensor where a window is full.
fn cut_windows(tensors: &[PlanTensor], limits: &PlanLimits) -> (Vec<Window>, Vec<Piece>) {
    let mut order: Vec<usize> = (0..tensors.len()).filter(|&t| tensors[t].len > 0).collect();
    order.sort_by_key(|&t| (tensors[t].buffer, tensors[t].offset));
    let mut windows: Vec<Window> = Vec::new();
    let mut pieces = Vec::with_capacity(order.len());
    for index in order {
        let tensor = &tensors[index];
        let (mut at, end) = (tensor.offset, tensor.end());
        while at < end {
            let fits = windows.last().is_some_and(|w| {
                w.buffer == tensor.buffer && at < w.offset.saturating_add(limits.window_bytes)
            });
            if !fits {
                let offset = at / limits.window_align * limits.window_align;
                windows.push(Window { buffer: tensor.buffer, offset, size: 0 });
            }
            let Some(window) = windows.last_mut() else { break };
            let stop = end.min(window.offset.saturating_add(limits.window_bytes));
            window.size = stop - window.offset;
            let element = (at - tensor.offset) / 4 * tensor.format.per_word();
            let words = (stop - at) / 4;
            pieces.push(Piece {
                tensor: index,
                window: windows.len() - 1,
                word: (at - windows[windows.len() - 1].offset) / 4,
                words,
                element,
                len: (tensor.len - element).min(words * tensor.format.per_word()),
            });
            at = stop;
        }
    }
    (windows, pieces)
}
