//! The WGSL that an engine's own kernels include. Every name in it that a module could meet elsewhere has a prefix.

use std::sync::OnceLock;

/// `struct GradclipVerdict` as WGSL text, for kernels of the engine that bind [`GradSet::verdict`](crate::GradSet::verdict).
pub const VERDICT_WGSL: &str = include_str!("../../shaders/verdict.wgsl");

/// What the shared files declare, and what it is called in the exported text.
const NAMES: [(&str, &str); 19] = [
    ("R24", "GradclipR24"),
    ("R24_ONE", "GRADCLIP_R24_ONE"),
    ("Wide", "GradclipWide"),
    ("wide_add", "gradclip_wide_add"),
    ("wide_shl", "gradclip_wide_shl"),
    ("wide_shr", "gradclip_wide_shr"),
    ("wide_bits", "gradclip_wide_bits"),
    ("product_24", "gradclip_product_24"),
    ("shift_round", "gradclip_shift_round"),
    ("r24_round", "gradclip_r24_round"),
    ("r24_round_128", "gradclip_r24_round_128"),
    ("r24_from_bits", "gradclip_r24_from_bits"),
    ("r24_mul", "gradclip_r24_mul"),
    ("r24_div", "gradclip_r24_div"),
    ("r24_inverse_product", "gradclip_r24_inverse_product"),
    ("r24_less", "gradclip_r24_less"),
    ("r24_add", "gradclip_r24_add"),
    ("r24_sqrt", "gradclip_r24_sqrt"),
    ("multiply_bits", "gradclip_multiply_bits"),
];

/// `fn gradclip_scaled_gradient(verdict: GradclipVerdict, gradient: f32) -> f32` as WGSL text, for kernels that apply the
/// factor themselves: the gradient times the verdict's factor, rounded once to f32, on every bit what a step stores for an
/// f32 gradient; the gradient itself where nothing is left to do, and 0 where the step is to be skipped.
/// `gradclip_scaled_gradient_bits` is the same on the bits of f32 numbers, for those who want subnormals kept by drivers that
/// flush them. Put it after [`VERDICT_WGSL`]. Every name that it declares begins with `gradclip`, `Gradclip` or `GRADCLIP`.
#[must_use]
pub fn scaled_wgsl() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let text =
            concat!(include_str!("../../shaders/exact.wgsl"), include_str!("../../shaders/scaled.wgsl"));
        prefixed(text)
    })
}

/// The text with every name of the list as a whole word replaced.
fn prefixed(text: &str) -> String {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len() * 5 / 4);
    let mut rest = text;
    while let Some(start) = rest.find(in_word) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !in_word(c)).unwrap_or(from.len()));
        out.push_str(before);
        out.push_str(NAMES.iter().find(|(name, _)| *name == word).map_or(word, |(_, exported)| exported));
        rest = after;
    }
    out + rest
}
