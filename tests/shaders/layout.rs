//! WGSL structs and constants equal their Rust twins, and the kernels ask for no more than `Context` demands of a device.

use core::mem::{offset_of, size_of};

use gradclip::plan::{self, Access};
use gradclip::{Format, Kernel, Verdict};
use naga::proc::Layouter;
use naga::{AddressSpace, Expression, Literal, StorageAccess, TypeInner};

use crate::{Shader, kernels, shaders};

/// Name and byte offset of each member, and the size.
fn layout(shader: &Shader, name: &str) -> (Vec<(String, u32)>, u32) {
    let TypeInner::Struct { ref members, span } = shader.type_named(name).inner else {
        panic!("{}: {name} is no struct", shader.name);
    };
    (members.iter().map(|m| (m.name.clone().unwrap_or_default(), m.offset)).collect(), span)
}

/// Checks a struct in every kernel of these variants, and that no other kernel has it.
fn check_in(variants: &[&str], name: &str, expected: &[(&str, usize)], size: usize) {
    for shader in shaders() {
        if shader.is_any(variants) {
            check(shader, name, expected, size);
        } else {
            assert!(shader.find_type(name).is_none(), "{}: {name}", shader.name);
        }
    }
}

/// Members that are 32-bit words one after the other.
fn words<'a>(names: &[&'a str]) -> Vec<(&'a str, usize)> {
    names.iter().enumerate().map(|(i, &name)| (name, 4 * i)).collect()
}

fn check(shader: &Shader, name: &str, expected: &[(&str, usize)], size: usize) {
    let (members, span) = layout(shader, name);
    let members: Vec<(&str, usize)> = members.iter().map(|(n, o)| (n.as_str(), *o as usize)).collect();
    assert_eq!(members, expected, "{}: {name}", shader.name);
    assert_eq!(span as usize, size, "{}: size of {name}", shader.name);
}

/// The value of a `const NAME = 1u;`; `None` if the shader has no such constant.
fn constant(shader: &Shader, name: &str) -> Option<u64> {
    let mut constants = shader.module.constants.iter();
    let (_, constant) = constants.find(|(_, c)| c.name.as_deref() == Some(name))?;
    match shader.module.global_expressions[constant.init] {
        Expression::Literal(Literal::U32(v)) => Some(v.into()),
        ref other => panic!("{}: {name} is {other:?}", shader.name),
    }
}

/// Checks a constant wherever it is declared; returns in how many shaders that is.
fn check_constant(name: &str, expected: u64) -> usize {
    let found = shaders().iter().filter_map(|s| constant(s, name).map(|v| (s, v)));
    found.map(|(s, v)| assert_eq!(v, expected, "{}: {name}", s.name)).count()
}

#[test]
fn verdict_equals_its_twin() {
    let members = [
        ("skip", offset_of!(Verdict, skip)),
        ("found_inf", offset_of!(Verdict, found_inf)),
        ("overflow", offset_of!(Verdict, overflow)),
        ("above", offset_of!(Verdict, above)),
        ("bad_scalar", offset_of!(Verdict, bad_scalar)),
        ("other", offset_of!(Verdict, other)),
        ("halted", offset_of!(Verdict, halted)),
        ("apply", offset_of!(Verdict, apply)),
        ("factor", offset_of!(Verdict, factor)),
        ("factor_significand", offset_of!(Verdict, factor_significand)),
        ("factor_exponent", offset_of!(Verdict, factor_exponent)),
        ("step_factor_significand", offset_of!(Verdict, step_factor_significand)),
        ("step_factor_exponent", offset_of!(Verdict, step_factor_exponent)),
        ("norm_significand", offset_of!(Verdict, norm_significand)),
        ("norm_exponent", offset_of!(Verdict, norm_exponent)),
        ("coefficient_significand", offset_of!(Verdict, coefficient_significand)),
        ("coefficient_exponent", offset_of!(Verdict, coefficient_exponent)),
        ("scale", offset_of!(Verdict, scale)),
        ("consumed", offset_of!(Verdict, consumed)),
        ("run", offset_of!(Verdict, run)),
        ("taken", offset_of!(Verdict, taken)),
    ];
    assert_eq!(size_of::<Verdict>(), 84);
    check_in(VERDICTS, "GradclipVerdict", &members, 84);
    // An engine's kernel gets the same struct from the exported text alone.
    check(
        &Shader::new("VERDICT_WGSL", gradclip::VERDICT_WGSL),
        "GradclipVerdict",
        &members,
        size_of::<Verdict>(),
    );
}

/// Each member's type too, since a float read as an integer has the same offset.
#[test]
fn verdict_members_have_the_twins_types() {
    let shader = Shader::kernel(Kernel::NormFinish);
    let TypeInner::Struct { ref members, .. } = shader.type_named("GradclipVerdict").inner else {
        panic!("no struct")
    };
    let kinds: Vec<String> = members
        .iter()
        .map(|m| match shader.module.types[m.ty].inner {
            TypeInner::Scalar(scalar) => format!("{:?}", scalar.kind),
            ref other => format!("{other:?}"),
        })
        .collect();
    let (u, i, f) = ("Uint", "Sint", "Float");
    assert_eq!(kinds, [u, u, u, u, u, u, u, u, f, u, i, u, i, u, i, u, i, f, u, u, u]);
}

/// Kernels that write or read what a tile leaves.
const PARTIALS: &[&str] = &[
    "NormPartials",
    "L1Partials",
    "NormFinish",
    "ShardLedger",
    "NormMerged",
    "NormJoined",
    "TensorNorms",
    "TensorFactors",
];
/// Kernels that write the gradients.
const WRITES: &[&str] = &["Apply", "ApplyEach", "ApplyCounted", "ApplyEachCounted"];
/// Kernels that decide.
const DECIDES: &[&str] = &["NormFinish", "NormMerged", "NormJoined"];
/// Kernels that know the verdict, or the set's own part beside it.
const VERDICTS: &[&str] = &[
    "NormFinish",
    "NormMerged",
    "NormJoined",
    "TensorNorms",
    "TensorFactors",
    "Apply",
    "ApplyEach",
    "ApplyCounted",
    "ApplyEachCounted",
    "ScaleUpdate",
    "Agree",
    "Gather",
];
/// Kernels of tiles.
const TILES: &[&str] =
    &["NormPartials", "L1Partials", "Apply", "ApplyEach", "ApplyCounted", "ApplyEachCounted"];
/// Kernels that are told a limit.
const LIMITED: &[&str] =
    &["NormFinish", "ShardLedger", "NormMerged", "NormJoined", "TensorNorms", "TensorFactors"];

#[test]
fn partial_is_as_long_as_the_planner_says() {
    let members = words(&[
        "largest", "digit_0", "digit_1", "digit_2", "digit_3", "carries", "nan", "pos_inf", "neg_inf",
        "first",
    ]);
    let size = plan::PARTIAL_BYTES as usize;
    check_in(PARTIALS, "Partial", &members, size);
}

/// The Rust twins of these are private and made of 32-bit words in this order.
#[test]
fn uniforms_and_state_have_their_twins_layout() {
    let mut finish = words(&["tile_count", "tensor_count", "tiles_at", "tile_words"]);
    finish.extend([("starts_low", 16), ("starts_high", 32)]);
    let finished: Vec<&str> = LIMITED.iter().copied().chain(["LostClear"]).collect();
    check_in(&finished, "Finish", &finish, 48);
    let step = [
        "scale",
        "divisor",
        "max_norm",
        "eps",
        "skip_above",
        "given",
        "from_words",
        "norm_type",
        "rule",
        "flags",
        "clip_f32",
        "clip_f16",
        "clip_bf16",
        "ticket",
        "merged_nonfinite",
        "merged_overflow",
        "merged_significand",
        "merged_exponent",
        "joined",
    ];
    check_in(LIMITED, "Step", &words(&step), 76);
    let own = [
        "skip",
        "apply",
        "factor",
        "factor_significand",
        "factor_exponent",
        "inverse_significand",
        "inverse_exponent",
        "max_norm",
        "eps",
        "steps",
        "consecutive_skipped",
        "skipped_before",
        "words",
    ];
    check_in(VERDICTS, "Own", &words(&own), 80);
    let shard = [
        ("low", 0),
        ("high", 16),
        ("f16", 32),
        ("count_low", 48),
        ("count_high", 64),
        ("ticket", 80),
        ("scale", 84),
        ("top", 88),
        ("overflow", 92),
        ("largest", 96),
    ];
    check_in(&["ShardLedger", "NormJoined"], "Shard", &shard, 112);
    check_in(&["NormJoined"], "Slot", &[("shard", 0), ("room", 112)], 256);
    let clip = [
        "norm_significand",
        "norm_exponent",
        "largest",
        "kind",
        "apply",
        "factor",
        "factor_significand",
        "factor_exponent",
        "coefficient_significand",
        "coefficient_exponent",
        "clip_value",
        "run",
    ];
    check_in(
        &["TensorNorms", "TensorFactors", "ApplyEach", "ApplyEachCounted"],
        "TensorClip",
        &words(&clip),
        48,
    );
    let dispatch = ["first_tile", "tile_count", "tile_words", "tiles_at", "zero"];
    check_in(TILES, "Dispatch", &words(&dispatch), 20);
    let range = ["first_tile", "tile_count", "rest_tile", "rest_count"];
    check_in(&["TensorNorms"], "Range", &words(&range), 16);
    check_in(&["DeltaNorm"], "Piece", &words(&["word", "scratch_word", "elements", "difference"]), 16);
    for shader in shaders().iter().filter(|s| s.is_any(&["ScaleUpdate", "Agree"])) {
        let last = if shader.is_any(&["Agree"]) { "tell" } else { "last" };
        check(shader, "Turn", &words(&["first", last]), 8);
    }
    check_in(&["Gather"], "Place", &words(&["word"]), 4);
    let config = [
        "growth_high",
        "growth_low",
        "growth_exponent",
        "backoff_high",
        "backoff_low",
        "backoff_exponent",
        "growth_interval",
        "hysteresis",
        "min_scale",
        "max_scale",
        "refill_on_finite",
        "dynamic",
        "most_skipped",
    ];
    check_in(&["ScaleUpdate"], "Config", &words(&config), 52);
    let state = [
        "scale",
        "halted",
        "growth_tracker",
        "hysteresis_left",
        "skipped",
        "consecutive_skipped",
        "updates",
        "stepped",
        "clipped",
        "above",
        "missed",
        "found_inf",
        "left_out",
        "fresh",
        "reserved_0",
        "reserved_1",
    ];
    check_in(&["ScaleUpdate"], "ScalerState", &words(&state), 64);
}

/// A norm is two words in the report: significand, then exponent.
#[test]
fn r24_is_two_words() {
    for shader in shaders()
        .iter()
        .filter(|s| !s.is_any(&["NormPartials", "L1Partials", "Agree", "Gather", "LostClear"]))
    {
        check(shader, "R24", &words(&["significand", "exponent"]), 8);
    }
}

/// The per-tensor counts start where `Report::decode` cuts them off.
#[test]
fn report_is_a_verdict_and_counts() {
    let shader = Shader::kernel(Kernel::NormFinish);
    let (members, _) = layout(&shader, "Report");
    let expected = [("verdict", 0), ("verdict_room", 84), ("own", 256), ("own_room", 336), ("census", 512)];
    let expected = expected.map(|(name, at)| (name.to_string(), at));
    assert_eq!(members, expected);
}

#[test]
fn constants_equal_their_twins() {
    let count = |variants: &[&str]| shaders().iter().filter(|s| s.is_any(variants)).count();
    assert_eq!(check_constant("THREADS", 256), kernels().len() - count(&["ScaleUpdate", "Agree", "Gather"]));
    let tables = count(TILES) + count(DECIDES);
    assert_eq!(check_constant("SEGMENT_WORDS", plan::SEGMENT_WORDS as u64), tables);
    // 36 bytes a tensor, private in Rust.
    assert_eq!(check_constant("CENSUS_WORDS", 9), count(DECIDES));
    assert_eq!(check_constant("NO_ELEMENT", u64::from(u32::MAX)), count(PARTIALS));
    assert_eq!(check_constant("NONFINITE", u64::from(f32::INFINITY.to_bits())), count(PARTIALS));
    for shader in shaders() {
        // As the function cell_binades of the kernels that read partials of both norms.
        // The sums of f16 have no cells.
        let binades = match shader.name.split('(').next() {
            _ if shader.name.contains("Partials(F16") => None,
            Some("NormPartials") => Some(11),
            Some("L1Partials") => Some(22),
            _ => None,
        };
        assert_eq!(constant(shader, "CELL_BINADES"), binades, "{}", shader.name);
    }
    // No tile of any plan: the planner keeps their number below it.
    assert_eq!(check_constant("NONE", u64::from(u32::MAX)), count(DECIDES));
    // What a report reads as "no norm", and no significand: those end below 2^24.
    let tensors = count(&["TensorNorms", "TensorFactors", "ApplyEach", "ApplyEachCounted"]);
    assert_eq!(check_constant("NO_PLACE", u64::from(u32::MAX)), count(WRITES));
    assert_eq!(check_constant("NO_NORM", u64::from(u32::MAX)), tensors);
    // `left` has a bit for each block of a tile.
    for shader in shaders() {
        if let Some(block) = constant(shader, "BLOCK_WORDS") {
            let bits = u64::from(plan::MAX_TILE_WORDS).div_ceil(block);
            assert!((1..=32).contains(&bits), "{}: {bits} bits", shader.name);
        }
    }
    for format in Format::ALL {
        let quads = Access::Quads;
        for kernel in [
            Kernel::NormPartials(format, quads, 1),
            Kernel::Apply(format, quads, 1),
            Kernel::DeltaNorm(format),
        ] {
            let shader = Shader::kernel(kernel);
            assert_eq!(constant(&shader, "ELEMENTS_PER_WORD"), Some(format.per_word()), "{kernel:?}");
        }
    }
}

/// Bindings by kind: read-only storage, writable storage, uniform.
fn bindings(shader: &Shader) -> [u32; 3] {
    let mut count = [0; 3];
    for (_, global) in shader.module.global_variables.iter() {
        match global.space {
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => count[1] += 1,
            AddressSpace::Storage { .. } => count[0] += 1,
            AddressSpace::Uniform => count[2] += 1,
            AddressSpace::WorkGroup => {}
            ref other => panic!("{}: a variable in {other:?}", shader.name),
        }
    }
    count
}

#[test]
fn l01_kernels_bind_what_the_planner_counts() {
    for kernel in kernels() {
        let expected = match kernel {
            Kernel::NormPartials(_, _, k) | Kernel::L1Partials(_, _, k) => [1 + k, 1, 1],
            Kernel::Apply(_, _, k) => [2, k, 1],
            Kernel::ApplyEach(_, _, k) => [3, k, 1],
            Kernel::ApplyCounted(_, _, k) => [2, k + 1, 1],
            Kernel::ApplyEachCounted(_, _, k) => [3, k + 1, 1],
            Kernel::NormFinish | Kernel::NormMerged => [2, 1, 3],
            Kernel::NormJoined => [3, 1, 3],
            Kernel::ShardLedger => [1, 1, 3],
            Kernel::TensorNorms => [3, 1, 3],
            Kernel::TensorFactors => [0, 2, 3],
            Kernel::Agree => [0, 2, 1],
            Kernel::Gather => [1, 1, 1],
            Kernel::LostClear => [0, 1, 1],
            Kernel::ScaleUpdate => [0, 2, 2],
            Kernel::DeltaNorm(_) => [1, 1, 1],
            _ => panic!("{kernel:?} has no expectation here"),
        };
        let bound = bindings(&Shader::kernel(kernel));
        assert_eq!(bound, expected, "{kernel:?}");
        // The usual kernels keep to what the planner counts, and the others to what the context demands: two more.
        let (windows, more) = match kernel {
            Kernel::NormPartials(_, _, k) | Kernel::L1Partials(_, _, k) | Kernel::Apply(_, _, k) => (k, 0),
            Kernel::ApplyEach(_, _, k) | Kernel::ApplyCounted(_, _, k) => (k, 1),
            Kernel::ApplyEachCounted(_, _, k) => (k, 2),
            _ => (0, 2),
        };
        let most = plan::OWN_STORAGE_BUFFERS + windows + more;
        assert!(bound[0] + bound[1] <= most, "{kernel:?}");
    }
    // WebGPU's eight, with the windows that a plan has there. Only what counts each tensor's losses may need one more, and is
    // refused then.
    let windows = plan::PlanLimits::webgpu().windows_per_dispatch;
    for kernel in [Kernel::Apply, Kernel::ApplyEach, Kernel::ApplyCounted] {
        let bound = bindings(&Shader::kernel(kernel(Format::F16, Access::Words, windows)));
        assert!(bound[0] + bound[1] <= 8, "{bound:?}");
    }
}

/// Workgroup memory as WebGPU counts it, each variable rounded up to 16 bytes. 9300 is what `Context::new` demands.
#[test]
fn workgroup_memory_is_what_the_context_demands() {
    let mut most = 0;
    for shader in shaders() {
        let mut layouter = Layouter::default();
        layouter.update(shader.module.to_ctx()).unwrap_or_else(|e| panic!("{}: {e}", shader.name));
        let globals = shader.module.global_variables.iter();
        let bytes: u32 = globals
            .filter(|(_, global)| global.space == AddressSpace::WorkGroup)
            .map(|(_, global)| layouter[global.ty].size.next_multiple_of(16))
            .sum();
        assert!(bytes <= 9_300, "{}: {bytes} bytes of workgroup memory", shader.name);
        most = most.max(bytes);
    }
    assert!(
        most > 9_200,
        "{most} bytes are the most that any kernel uses: the demand of 9300 is too high now"
    );
}
