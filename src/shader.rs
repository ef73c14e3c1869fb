//! The kernels' WGSL, put together from the files in `shaders/`.

use std::fmt::Write as _;

use crate::Format;

/// Threads of a workgroup in every kernel.
pub(crate) const THREADS: u32 = 256;
/// Words that a thread holds at a time.
const LANE_WORDS: u32 = 16;

const EXACT: &str = include_str!("../shaders/exact.wgsl");
const TILE: &str = include_str!("../shaders/tile.wgsl");
const PARTIAL: &str = include_str!("../shaders/partial.wgsl");
/// `struct Verdict` as WGSL text, for kernels of the engine that bind [`GradSet::verdict`](crate::GradSet::verdict).
pub const VERDICT_WGSL: &str = include_str!("../shaders/verdict.wgsl");
const NORM_PARTIALS: &str = include_str!("../shaders/norm_partials.wgsl");
const NORM_FINISH: &str = include_str!("../shaders/norm_finish.wgsl");
const APPLY: &str = include_str!("../shaders/apply.wgsl");

/// A kernel, its format and the number of windows that it binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Gradients to one partial per tile.
    NormPartials(Format, u32),
    /// Partials to a verdict.
    NormFinish,
    /// Gradients times factor, in place.
    Apply(Format, u32),
}

impl Kernel {
    /// The kernel's file stem.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NormPartials(..) => "norm_partials",
            Self::NormFinish => "norm_finish",
            Self::Apply(..) => "apply",
        }
    }

    /// The whole WGSL text.
    #[must_use]
    pub fn wgsl(self) -> String {
        match self {
            Self::NormPartials(format, windows) => {
                [TILE, format_text(format), &window_text(windows, "read"), PARTIAL, NORM_PARTIALS].concat()
            }
            Self::NormFinish => [EXACT, PARTIAL, VERDICT_WGSL, NORM_FINISH].concat(),
            Self::Apply(format, windows) => {
                let windows = window_text(windows, "read_write") + &store_text(windows);
                [EXACT, TILE, format_text(format), &windows, VERDICT_WGSL, APPLY].concat()
            }
        }
    }
}

fn format_text(format: Format) -> &'static str {
    match format {
        Format::F32 => include_str!("../shaders/formats/f32.wgsl"),
        Format::F16 => include_str!("../shaders/formats/f16.wgsl"),
        Format::Bf16 => include_str!("../shaders/formats/bf16.wgsl"),
    }
}

/// WGSL has no arrays of bindings, so each window is a variable of its own and a switch picks one.
fn window_text(windows: u32, access: &str) -> String {
    let mut text = String::new();
    for w in 0..windows {
        let binding = w + 1;
        let _ =
            writeln!(text, "@group(1) @binding({binding}) var<storage, {access}> window_{w}: array<u32>;");
    }
    let block: Vec<String> =
        (0..4).map(|v| vec4((0..4).map(|i| format!("WINDOW[at + {}u]", (4 * v + i) * THREADS)))).collect();
    let block = format!("return Block({});", block.join(", "));
    text += &per_window("read_block(slot: u32, at: u32) -> Block", windows, &block);
    let four = vec4(["x", "y", "z", "w"].map(|c| format!("WINDOW[at.{c}]")).into_iter());
    text +=
        &per_window("read_at(slot: u32, at: vec4<u32>) -> vec4<u32>", windows, &format!("return {four};"));
    text
}

fn store_text(windows: u32) -> String {
    let block: String = (0..LANE_WORDS)
        .map(|i| {
            let (vector, part) = (["a", "b", "c", "d"][i as usize / 4], ["x", "y", "z", "w"][i as usize % 4]);
            format!("WINDOW[at + {}u] = block.{vector}.{part}; ", i * THREADS)
        })
        .collect();
    per_window("write_block(slot: u32, at: u32, block: Block)", windows, &block)
        + &per_window("write_word(slot: u32, at: u32, word: u32)", windows, "WINDOW[at] = word;")
}

fn vec4(parts: impl Iterator<Item = String>) -> String {
    format!("vec4<u32>({})", parts.collect::<Vec<_>>().join(", "))
}

/// A function whose body exists once per window, `WINDOW` standing for the variable.
fn per_window(signature: &str, windows: u32, body: &str) -> String {
    let body = |w: u32| body.replace("WINDOW", &format!("window_{w}"));
    if windows == 1 {
        return format!("fn {signature} {{ {} }}\n", body(0));
    }
    let mut text = format!("fn {signature} {{\n    switch slot {{\n");
    for w in 0..windows {
        let case = if w + 1 == windows { "default".into() } else { format!("case {w}u") };
        let _ = writeln!(text, "        {case}: {{ {} }}", body(w));
    }
    text + "    }\n}\n"
}
