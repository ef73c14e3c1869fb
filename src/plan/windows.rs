//! Ranges of buffers that are bound at once, and the pieces of tensors in them.

use super::{Access, PlanLimits, PlanTensor, RAGGED_WORDS, Window};

/// A piece of a tensor inside one window.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub tensor: usize,
    pub window: usize,
    pub word: u64,
    pub words: u64,
    pub element: u64,
    pub len: u64,
}

impl Piece {
    /// What of the piece is reached in one way. A tensor's quads come before its rest, so that its tiles rise with its
    /// elements.
    pub fn part(&self, tensor: &PlanTensor, access: Access, limits: &PlanLimits) -> Option<Self> {
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
pub(super) fn cut_windows(tensors: &[PlanTensor], limits: &PlanLimits) -> (Vec<Window>, Vec<Piece>) {
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
