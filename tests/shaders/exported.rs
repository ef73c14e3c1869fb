//! The WGSL that engines put into modules of their own.

use gradclip::{VERDICT_WGSL, scaled_wgsl};
use naga::valid::Capabilities;
use naga::{AddressSpace, Module};

use crate::{Shader, shaders};

/// Kernels that multiply as an engine does.
const APPLY: &[&str] = &["Apply", "ApplyEach", "ApplyCounted", "ApplyEachCounted"];

fn exported() -> Shader {
    Shader::new("VERDICT_WGSL + scaled_wgsl()", &[VERDICT_WGSL, scaled_wgsl()].concat())
}

/// The names of types, constants, overrides, variables and functions.
fn names(module: &Module) -> Vec<String> {
    let types = module.types.iter().map(|(_, ty)| &ty.name);
    let constants = module.constants.iter().map(|(_, c)| &c.name);
    let overrides = module.overrides.iter().map(|(_, o)| &o.name);
    let variables = module.global_variables.iter().map(|(_, v)| &v.name);
    let functions = module.functions.iter().map(|(_, f)| &f.name);
    let all = types.chain(constants).chain(overrides).chain(variables).chain(functions);
    let mut names: Vec<String> = all.flatten().cloned().collect();
    names.extend(module.entry_points.iter().map(|entry| entry.name.clone()));
    names
}

/// The names that the text declares outside of functions, whether the module uses them or not.
fn declared(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    let mut names = Vec::new();
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
        let mut words =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if depth == 0 && ["fn", "struct", "const", "alias", "override", "var"].contains(&word) {
                names.extend(words.next());
            }
        }
        depth += line.matches('{').count() as i32 - line.matches('}').count() as i32;
    }
    names
}

#[test]
fn every_name_has_the_prefix() {
    let shader = exported();
    let text = declared(&shader.source);
    for name in names(&shader.module).iter().map(String::as_str).chain(text.iter().copied()) {
        assert!(name.to_ascii_lowercase().starts_with("gradclip"), "{name} is declared without the prefix");
    }
    // Both ways of looking see what an engine calls.
    for name in ["GradclipVerdict", "gradclip_scaled_gradient", "gradclip_scaled_gradient_bits"] {
        assert!(text.contains(&name) && names(&shader.module).iter().any(|n| n == name), "{name}");
    }
    let both =
        declared("struct A { b: u32 }\nconst C = 1u; // fn d()\nfn e(f: u32) {\n    const g = 2u;\n}\n");
    assert_eq!(both, ["A", "C", "e"]);
}

#[test]
fn it_parses_alone_and_asks_for_no_binding() {
    assert_eq!(Shader::new("VERDICT_WGSL", VERDICT_WGSL).module.functions.len(), 0);
    let shader = exported();
    assert!(shader.module.global_variables.is_empty() && shader.module.entry_points.is_empty());
    // In any order: WGSL has none.
    Shader::new("reversed", &[scaled_wgsl(), VERDICT_WGSL].concat());
}

/// Beside names that the crate's own files use, and others that a kernel may have.
#[test]
fn it_lives_beside_an_engine_s_own_names() {
    let kernel = "
        struct Verdict { skip: u32 }
        struct R24 { a: u32 }
        struct Wide { a: u32 }
        const R24_ONE = 1u;
        fn r24_mul(a: u32, b: u32) -> u32 { return a * b; }
        fn multiply_bits(a: u32) -> u32 { return r24_mul(a, R24_ONE); }
        fn scaled_gradient(v: f32) -> f32 { return v; }
        @group(0) @binding(0) var<storage, read> verdict: GradclipVerdict;
        @group(0) @binding(1) var<storage, read_write> gradients: array<f32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            gradients[id.x] = scaled_gradient(gradclip_scaled_gradient(verdict, gradients[id.x]));
        }";
    let source = [VERDICT_WGSL, scaled_wgsl(), kernel].concat();
    let shader = Shader::with("engine", &source, Capabilities::empty());
    let storage = |space: AddressSpace| matches!(space, AddressSpace::Storage { .. });
    assert!(shader.module.global_variables.iter().all(|(_, global)| storage(global.space)));
}

/// The exported arithmetic is the kernels', under other names.
#[test]
fn it_is_the_arithmetic_of_the_kernels() {
    let exported = scaled_wgsl().replace("gradclip_", "").replace("GRADCLIP_", "").replace("Gradclip", "");
    let exact = include_str!("../../shaders/exact.wgsl");
    assert!(exported.starts_with(exact), "renaming changed more than names");
    for shader in shaders().iter().filter(|shader| shader.is_any(APPLY)) {
        assert!(shader.source.contains(exact), "{}", shader.name);
    }
}
