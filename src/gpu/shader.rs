//! The kernels' WGSL, put together from the files in `shaders/`.

use std::fmt::Write as _;

use crate::Format;
use crate::plan::Access;

/// Threads of a workgroup in every kernel.
pub(crate) const THREADS: u32 = 256;

const EXACT: &str = include_str!("../../shaders/exact.wgsl");
const TILE: &str = include_str!("../../shaders/tile.wgsl");
const PARTIAL: &str = include_str!("../../shaders/partial.wgsl");
const VERDICT: &str = include_str!("../../shaders/verdict.wgsl");
const OWN: &str = include_str!("../../shaders/own.wgsl");
const STEP: &str = include_str!("../../shaders/step.wgsl");
const CLASSES: &str = include_str!("../../shaders/classes.wgsl");
const NORM_PARTIALS: &str = include_str!("../../shaders/norm_partials.wgsl");
const DIGITS: &str = include_str!("../../shaders/sums/digits.wgsl");
const WHOLE: &str = include_str!("../../shaders/sums/whole.wgsl");
const L2: &str = include_str!("../../shaders/norms/l2.wgsl");
const L1: &str = include_str!("../../shaders/norms/l1.wgsl");
const L2_F16: &str = include_str!("../../shaders/norms/l2_f16.wgsl");
const L1_F16: &str = include_str!("../../shaders/norms/l1_f16.wgsl");
const DECIDE: &str = include_str!("../../shaders/decide.wgsl");
const NORM_FINISH: &str = include_str!("../../shaders/norm_finish.wgsl");
const NORM_MERGED: &str = include_str!("../../shaders/norm_merged.wgsl");
const SHARD: &str = include_str!("../../shaders/shard.wgsl");
const SHARD_LEDGER: &str = include_str!("../../shaders/shard_ledger.wgsl");
const NORM_JOINED: &str = include_str!("../../shaders/norm_joined.wgsl");
const AGREE: &str = include_str!("../../shaders/agree.wgsl");
const GATHER: &str = include_str!("../../shaders/gather.wgsl");
const LEDGER: &str =
    concat!(include_str!("../../shaders/wide_128.wgsl"), include_str!("../../shaders/ledger.wgsl"));
const TENSOR_CLIP: &str = include_str!("../../shaders/tensor_clip.wgsl");
const TENSOR_NORMS: &str = include_str!("../../shaders/tensor_norms.wgsl");
const TENSOR_FACTORS: &str = include_str!("../../shaders/tensor_factors.wgsl");
const DELTA_NORM: &str = include_str!("../../shaders/delta_norm.wgsl");
const SCALER_STATE: &str = include_str!("../../shaders/scaler_state.wgsl");
const SCALE_UPDATE: &str = include_str!("../../shaders/scale_update.wgsl");
const WORK: &str = include_str!("../../shaders/factors/work.wgsl");
const OF_SET: &str = include_str!("../../shaders/factors/of_set.wgsl");
const OF_TENSOR: &str = include_str!("../../shaders/factors/of_tensor.wgsl");
const TALLY_NOTHING: &str = include_str!("../../shaders/tally/nothing.wgsl");
const TALLY_LOST: &str = include_str!("../../shaders/tally/lost.wgsl");
const LOST_CLEAR: &str = include_str!("../../shaders/lost_clear.wgsl");
const APPLY: &str = include_str!("../../shaders/apply.wgsl");

/// A kernel, its format, how it reads and writes, and the number of windows that it binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Gradients to one partial per tile.
    NormPartials(Format, Access, u32),
    /// The same for an L1 norm.
    L1Partials(Format, Access, u32),
    /// Partials to a verdict.
    NormFinish,
    /// Partials to the ledger of a part of a sharded set.
    ShardLedger,
    /// A merged ledger to a verdict.
    NormMerged,
    /// Ledgers of several sets of one device to a verdict.
    NormJoined,
    /// The verdicts of several sets to one choice: all or none.
    Agree,
    /// A number from a buffer of the caller's.
    Gather,
    /// Partials to a norm per tensor.
    TensorNorms,
    /// Norms of tensors to a factor per tensor.
    TensorFactors,
    /// Parameters to what they changed by.
    DeltaNorm(Format),
    /// Verdicts to the next loss scale.
    ScaleUpdate,
    /// Gradients times factor, in place.
    Apply(Format, Access, u32),
    /// Gradients times the factor of their tensor, and no larger than a value, in place.
    ApplyEach(Format, Access, u32),
    /// `Apply` that counts what becomes 0 or subnormal.
    ApplyCounted(Format, Access, u32),
    /// `ApplyEach` that counts what becomes 0 or subnormal.
    ApplyEachCounted(Format, Access, u32),
    /// Clears those counts.
    LostClear,
}

impl Kernel {
    /// The kernel's file stem.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NormPartials(..) | Self::L1Partials(..) => "norm_partials",
            Self::NormFinish => "norm_finish",
            Self::ShardLedger => "shard_ledger",
            Self::NormMerged => "norm_merged",
            Self::NormJoined => "norm_joined",
            Self::Agree => "agree",
            Self::Gather => "gather",
            Self::LostClear => "lost_clear",
            Self::TensorNorms => "tensor_norms",
            Self::TensorFactors => "tensor_factors",
            Self::DeltaNorm(_) => "delta_norm",
            Self::ScaleUpdate => "scale_update",
            Self::Apply(..) | Self::ApplyEach(..) | Self::ApplyCounted(..) | Self::ApplyEachCounted(..) => {
                "apply"
            }
        }
    }

    /// The whole WGSL text.
    #[must_use]
    pub fn wgsl(self) -> String {
        match self {
            Self::NormPartials(format, access, windows) => {
                partials_text([L2, L2_F16], format, access, windows)
            }
            Self::L1Partials(format, access, windows) => partials_text([L1, L1_F16], format, access, windows),
            Self::NormFinish => {
                [EXACT, PARTIAL, STEP, LEDGER, VERDICT, OWN, CLASSES, DECIDE, NORM_FINISH].concat()
            }
            Self::ShardLedger => [EXACT, PARTIAL, STEP, LEDGER, CLASSES, SHARD, SHARD_LEDGER].concat(),
            Self::NormMerged => [EXACT, PARTIAL, STEP, VERDICT, OWN, CLASSES, DECIDE, NORM_MERGED].concat(),
            Self::NormJoined => {
                [EXACT, PARTIAL, STEP, LEDGER, VERDICT, OWN, CLASSES, DECIDE, SHARD, NORM_JOINED].concat()
            }
            Self::Agree => [VERDICT, OWN, AGREE].concat(),
            Self::Gather => [VERDICT, OWN, GATHER].concat(),
            Self::TensorNorms => {
                [EXACT, PARTIAL, STEP, LEDGER, VERDICT, OWN, CLASSES, TENSOR_CLIP, TENSOR_NORMS].concat()
            }
            Self::TensorFactors => {
                [EXACT, PARTIAL, STEP, VERDICT, OWN, CLASSES, TENSOR_CLIP, TENSOR_FACTORS].concat()
            }
            Self::DeltaNorm(format) => [EXACT, format_text(format), DELTA_NORM].concat(),
            Self::ScaleUpdate => [EXACT, VERDICT, OWN, SCALER_STATE, SCALE_UPDATE].concat(),
            Self::LostClear => [CLASSES, LOST_CLEAR].concat(),
            Self::Apply(format, access, windows) => {
                apply_text(&[VERDICT, OWN, WORK, OF_SET, TALLY_NOTHING], format, access, windows)
            }
            Self::ApplyCounted(format, access, windows) => {
                apply_text(&[VERDICT, OWN, WORK, OF_SET, TALLY_LOST], format, access, windows)
            }
            Self::ApplyEach(format, access, windows) => {
                let factors = &[VERDICT, OWN, TENSOR_CLIP, WORK, OF_TENSOR, TALLY_NOTHING];
                apply_text(factors, format, access, windows)
            }
            Self::ApplyEachCounted(format, access, windows) => {
                let factors = &[VERDICT, OWN, TENSOR_CLIP, WORK, OF_TENSOR, TALLY_LOST];
                apply_text(factors, format, access, windows)
            }
        }
    }
}

/// `norms`: the norm, and the same of f16.
fn partials_text(norms: [&str; 2], format: Format, access: Access, windows: u32) -> String {
    let windows = window_text(access, windows, "read");
    let sums = match format {
        Format::F32 | Format::Bf16 => [norms[0], DIGITS],
        Format::F16 => [norms[1], WHOLE],
    };
    [&tile_text(format, access), &windows, PARTIAL, &sums.concat(), NORM_PARTIALS].concat()
}

fn apply_text(factors: &[&str], format: Format, access: Access, windows: u32) -> String {
    let windows = window_text(access, windows, "read_write") + &store_text(access, windows);
    let tiles = tile_text(format, access) + format_store(format);
    [EXACT, &tiles, &windows, &factors.concat(), APPLY].concat()
}

fn format_text(format: Format) -> &'static str {
    match format {
        Format::F32 => include_str!("../../shaders/formats/f32.wgsl"),
        Format::F16 => {
            concat!(
                include_str!("../../shaders/formats/pairs.wgsl"),
                include_str!("../../shaders/formats/f16.wgsl")
            )
        }
        Format::Bf16 => {
            concat!(
                include_str!("../../shaders/formats/pairs.wgsl"),
                include_str!("../../shaders/formats/bf16.wgsl")
            )
        }
    }
}

fn format_store(format: Format) -> &'static str {
    match format {
        Format::F32 => include_str!("../../shaders/formats/f32_store.wgsl"),
        Format::F16 => include_str!("../../shaders/formats/f16_store.wgsl"),
        Format::Bf16 => include_str!("../../shaders/formats/bf16_store.wgsl"),
    }
}

/// What a kernel that works on tiles needs to know of a format.
fn tile_text(format: Format, access: Access) -> String {
    // Quads are cut so that no word of them is shared.
    let of_tile = match (format, access) {
        (Format::F32, _) | (_, Access::Quads) => include_str!("../../shaders/formats/whole_words.wgsl"),
        (Format::F16 | Format::Bf16, Access::Words) => {
            include_str!("../../shaders/formats/shared_words.wgsl")
        }
    };
    let of_access = match access {
        Access::Quads => include_str!("../../shaders/formats/quads.wgsl"),
        Access::Words => include_str!("../../shaders/formats/words.wgsl"),
    };
    [TILE, of_access, format_text(format), of_tile].concat()
}

/// WGSL has no arrays of bindings, so each window is a variable of its own and a switch picks one.
fn window_text(access: Access, windows: u32, mode: &str) -> String {
    let element = match access {
        Access::Quads => "vec4<u32>",
        Access::Words => "u32",
    };
    let mut text = String::new();
    for w in 0..windows {
        let binding = w + 1;
        let _ = writeln!(
            text,
            "@group(1) @binding({binding}) var<storage, {mode}> window_{w}: array<{element}>;"
        );
    }
    let words = ["a", "b", "c", "d"].map(|v| match access {
        Access::Quads => format!("WINDOW[places.{v}.x >> 2u]"),
        Access::Words => {
            let parts = ["x", "y", "z", "w"].map(|c| format!("WINDOW[places.{v}.{c}]"));
            format!("vec4<u32>({})", parts.join(", "))
        }
    });
    let block = format!("return Block({});", words.join(", "));
    text += &per_window("read_words(slot: u32, places: Block) -> Block", windows, &block);
    let word = format!("return {};", word_of(access));
    text + &per_window("read_word(slot: u32, at: u32) -> u32", windows, &word)
}

fn store_text(access: Access, windows: u32) -> String {
    let mut block = String::new();
    for v in ["a", "b", "c", "d"] {
        match access {
            // A quad belongs to a tile whole.
            Access::Quads => {
                let _ = write!(
                    block,
                    "if places.{v}.x < tile.end {{ WINDOW[places.{v}.x >> 2u] = block.{v}; }} "
                );
            }
            Access::Words => {
                for c in ["x", "y", "z", "w"] {
                    let place = format!("places.{v}.{c}");
                    let _ = write!(block, "if {place} < tile.end {{ WINDOW[{place}] = block.{v}.{c}; }} ");
                }
            }
        }
    }
    let word = format!("{} = word;", word_of(access));
    per_window_of("tile.slot", "write_block(tile: Tile, places: Block, block: Block)", windows, &block)
        + &per_window("write_word(slot: u32, at: u32, word: u32)", windows, &word)
}

fn word_of(access: Access) -> &'static str {
    match access {
        Access::Quads => "WINDOW[at >> 2u][at & 3u]",
        Access::Words => "WINDOW[at]",
    }
}

/// A function whose body exists once per window, `WINDOW` standing for the variable.
fn per_window(signature: &str, windows: u32, body: &str) -> String {
    per_window_of("slot", signature, windows, body)
}

fn per_window_of(slot: &str, signature: &str, windows: u32, body: &str) -> String {
    let body = |w: u32| body.replace("WINDOW", &format!("window_{w}"));
    if windows == 1 {
        return format!("fn {signature} {{ {} }}\n", body(0));
    }
    let mut text = format!("fn {signature} {{\n    switch {slot} {{\n");
    for w in 0..windows {
        let case = if w + 1 == windows { "default".into() } else { format!("case {w}u") };
        let _ = writeln!(text, "        {case}: {{ {} }}", body(w));
    }
    text + "    }\n}\n"
}
