//! WGSL structs and constants equal their Rust twins, and the kernels ask for no more than `Context` demands of a device.

use core::mem::{offset_of, size_of};

use gradclip::{Format, Kernel, Verdict, plan};
use naga::proc::Layouter;
use naga::{AddressSpace, Expression, Literal, StorageAccess, TypeInner};

use crate::{Shader, kernels, shaders};

/// Name and byte offset of each member, and the size.
fn layout(shader: &Shader, name: &str) -> (Vec<(String, u32)>, u32) {
    let TypeInner::Struct { ref members, span } = shader.type_named(name).1.inner else {
        panic!("{}: {name} is no struct", shader.name);
    };
    (members.iter().map(|m| (m.name.clone().unwrap_or_default(), m.offset)).collect(), span)
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
        ("found_inf", offset_of!(Verdict, found_inf)),
        ("overflow", offset_of!(Verdict, overflow)),
        ("apply", offset_of!(Verdict, apply)),
        ("factor", offset_of!(Verdict, factor)),
        ("factor_significand", offset_of!(Verdict, factor_significand)),
        ("factor_exponent", offset_of!(Verdict, factor_exponent)),
        ("norm_significand", offset_of!(Verdict, norm_significand)),
        ("norm_exponent", offset_of!(Verdict, norm_exponent)),
        ("coefficient_significand", offset_of!(Verdict, coefficient_significand)),
        ("coefficient_exponent", offset_of!(Verdict, coefficient_exponent)),
        ("scale", offset_of!(Verdict, scale)),
        ("run", offset_of!(Verdict, run)),
    ];
    for shader in shaders().iter().filter(|s| !s.name.starts_with("NormPartials")) {
        check(shader, "Verdict", &members, size_of::<Verdict>());
    }
    // An engine's kernel gets the same struct from the exported text alone.
    check(&Shader::new("VERDICT_WGSL", gradclip::VERDICT_WGSL), "Verdict", &members, size_of::<Verdict>());
}

/// Each member's type too, since a float read as an integer has the same offset.
#[test]
fn verdict_members_have_the_twins_types() {
    let shader = Shader::kernel(Kernel::NormFinish);
    let TypeInner::Struct { ref members, .. } = shader.type_named("Verdict").1.inner else {
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
    assert_eq!(kinds, [u, u, u, f, u, i, u, i, u, i, f, u]);
}

#[test]
fn partial_is_as_long_as_the_planner_says() {
    let members = [
        ("largest", 0),
        ("digit_0", 4),
        ("digit_1", 8),
        ("digit_2", 12),
        ("digit_3", 16),
        ("carries", 20),
        ("nan", 24),
        ("pos_inf", 28),
        ("neg_inf", 32),
        ("first", 36),
    ];
    for shader in shaders().iter().filter(|s| !s.name.starts_with("Apply")) {
        check(shader, "Partial", &members, plan::PARTIAL_BYTES as usize);
    }
}

/// The twins `DispatchUniform` and `FinishUniform` are private and made of u32 in this order.
#[test]
fn uniforms_have_their_twins_layout() {
    for shader in shaders() {
        if shader.name.starts_with("NormFinish") {
            let members = [
                ("tile_count", 0),
                ("first_f16", 4),
                ("first_bf16", 8),
                ("tensor_count", 12),
                ("tiles_at", 16),
                ("tile_words", 20),
            ];
            check(shader, "Finish", &members, 24);
            check(shader, "Limit", &[("max_norm", 0), ("eps", 4)], 8);
        } else {
            let members =
                [("first_tile", 0), ("tile_count", 4), ("tile_words", 8), ("tiles_at", 12), ("zero", 16)];
            check(shader, "Dispatch", &members, 20);
        }
    }
}

/// The per-tensor counts start where `Report::decode` cuts them off.
#[test]
fn report_is_a_verdict_and_counts() {
    let shader = Shader::kernel(Kernel::NormFinish);
    let (members, _) = layout(&shader, "Report");
    let expected = [("verdict".to_string(), 0), ("census".to_string(), size_of::<Verdict>() as u32)];
    assert_eq!(members, expected);
}

#[test]
fn constants_equal_their_twins() {
    let all = kernels().len();
    assert_eq!(check_constant("THREADS", 256), all);
    assert_eq!(check_constant("SEGMENT_WORDS", plan::SEGMENT_WORDS as u64), all);
    // 36 bytes a tensor, private in Rust.
    assert_eq!(check_constant("CENSUS_WORDS", 9), 1);
    let gradients = all - 1;
    assert_eq!(check_constant("NO_ELEMENT", u64::from(u32::MAX)), 1 + gradients / 2);
    // No tile of any plan: the planner keeps their number below it.
    assert_eq!(check_constant("NONE", u64::from(u32::MAX)), 1);
    assert_eq!(check_constant("CELL_BINADES", 11), 1 + gradients / 2);
    // `left` has a bit for each block of a tile, two for 16-bit formats.
    for shader in shaders() {
        if let Some(block) = constant(shader, "BLOCK_WORDS") {
            let elements = constant(shader, "ELEMENTS_PER_WORD").unwrap_or(0);
            let bits = u64::from(plan::MAX_TILE_WORDS).div_ceil(block) * elements;
            assert!((1..=32).contains(&bits), "{}: {bits} bits", shader.name);
        }
    }
    for format in Format::ALL {
        let shader = Shader::kernel(Kernel::Apply(format, 1));
        assert_eq!(constant(&shader, "ELEMENTS_PER_WORD"), Some(format.per_word()), "{format}");
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
            Kernel::NormPartials(_, k) => [1 + k, 1, 1],
            Kernel::Apply(_, k) => [2, k, 1],
            Kernel::NormFinish => [2, 1, 3],
        };
        let bound = bindings(&Shader::kernel(kernel));
        assert_eq!(bound, expected, "{kernel:?}");
        // The kernel without windows fits where one window does.
        let windows = match kernel {
            Kernel::NormPartials(_, k) | Kernel::Apply(_, k) => k,
            Kernel::NormFinish => 1,
        };
        assert!(bound[0] + bound[1] <= plan::OWN_STORAGE_BUFFERS + windows, "{kernel:?}");
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
