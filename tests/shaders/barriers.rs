//! Every barrier is reached by all threads of a workgroup or by none (public report K01). naga accepts barriers that are
//! not, so this follows what can differ between threads.

use naga::{AddressSpace, Binding, BuiltIn, Expression, Handle, StorageAccess};

use crate::flow::{Body, Flow, Level, Rule};
use crate::operands::operands;
use crate::{Shader, shaders, snippet};

/// May differ between the threads of a workgroup.
const DIVERGENT: Level = 1;

struct UniformRule;

impl Rule for UniformRule {
    fn value(
        &self,
        body: &Body<'_>,
        expr: Handle<Expression>,
        of: &dyn Fn(Handle<Expression>) -> Level,
    ) -> Level {
        let operands = operands(body.expression(expr));
        operands.values.into_iter().chain(operands.choices).map(of).max().unwrap_or(0)
    }

    fn builtin(&self, binding: Option<&Binding>) -> Level {
        match binding {
            Some(Binding::BuiltIn(BuiltIn::WorkGroupId | BuiltIn::NumWorkGroups)) => 0,
            _ => DIVERGENT,
        }
    }

    fn load(&self, space: AddressSpace, stored: Level, index: Level) -> Level {
        match space {
            AddressSpace::Uniform => index,
            AddressSpace::Storage { access: StorageAccess::LOAD } => index,
            AddressSpace::Function | AddressSpace::Private => stored.max(index),
            // Another thread may write between two reads.
            _ => DIVERGENT,
        }
    }

    fn store(&self, _: AddressSpace, value: Level, control: Level) -> Level {
        value.max(control)
    }
}

fn violations(shader: &Shader) -> Vec<String> {
    let flow = Flow::run(shader, UniformRule);
    let bad = flow.barriers.iter().filter(|&&(_, level)| level > 0);
    bad.map(|&(span, _)| format!("{}: {}", shader.name, shader.text(span))).collect()
}

#[test]
fn k01_every_barrier_is_reached_by_the_whole_workgroup() {
    for shader in shaders() {
        let found = violations(shader);
        assert!(found.is_empty(), "{found:#?}");
        let waits = Flow::run(shader, UniformRule).barriers.len();
        let alone = shader.is_any(&[
            "Apply",
            "ApplyEach",
            "ApplyCounted",
            "ApplyEachCounted",
            "DeltaNorm",
            "ScaleUpdate",
            "Agree",
            "Gather",
            "LostClear",
        ]);
        assert_eq!(waits > 0, !alone, "{}: {waits} barriers", shader.name);
    }
}

#[test]
fn k01_divergent_barriers_are_found() {
    let items = "
        fn wait() { workgroupBarrier(); }
        fn wait_if(yes: bool) { if yes { wait(); } }
        fn early(l: u32) { if l > 3u { return; } wait(); }";
    for body in [
        "if lane < 3u { workgroupBarrier(); }",
        "if lane < 3u { return; } workgroupBarrier();",
        "if lane < 3u { data[0] = 1.0; } else { storageBarrier(); }",
        "let l = lane + group.x; if l < 3u { wait(); }",
        "wait_if(lane == 0u);",
        "early(lane);",
        "for (var i = lane; i < 9u; i += 1u) { workgroupBarrier(); }",
        "for (var i = 0u; i < 9u; i += 1u) { if i == lane { break; } workgroupBarrier(); }",
        "for (var i = 0u; i < 9u; i += 1u) { workgroupBarrier(); if i == lane { break; } }",
        "for (var i = 0u; i < 9u; i += 1u) { if i == lane { continue; } workgroupBarrier(); }",
        "loop { if i32(lane) > 3 { return; } break; } workgroupBarrier();",
        "var n = 0u; if lane == 0u { n = 1u; } if n == 1u { workgroupBarrier(); }",
        "if words[lane] == 0u { return; } workgroupBarrier();",
        "if x == 0.0 { return; } workgroupBarrier();",
        "if shared_words[0] == 0u { workgroupBarrier(); }",
        "if atomicLoad(&shared_atomic) == 0u { workgroupBarrier(); }",
        "switch lane { case 0u: { workgroupBarrier(); } default: {} }",
        "if lane == 0u { let v = workgroupUniformLoad(&shared_words[0]); data[0] = f32(v); }",
    ] {
        assert!(!violations(&snippet(items, body)).is_empty(), "not noticed: {body}");
    }
}

#[test]
fn k01_uniform_barriers_pass() {
    let items = "
        fn wait() { workgroupBarrier(); }
        fn early(n: u32) { if n > 3u { return; } wait(); }";
    for body in [
        "workgroupBarrier();",
        "if group.x >= u.zero || words[0] == 0u { return; } workgroupBarrier();",
        "for (var s = 32u; s > 0u; s /= 2u) { workgroupBarrier(); if lane < s { data[lane] = x; } }",
        "for (var i = lane; i < 9u; i += 1u) { data[i] = y; } workgroupBarrier();",
        "if workgroupUniformLoad(&shared_words[0]) != 0u { wait(); }",
        "if lane == 0u { shared_words[0] = 1u; } workgroupBarrier();",
        "early(group.x);",
        "switch group.x { case 0u: { workgroupBarrier(); } default: {} }",
    ] {
        let found = violations(&snippet(items, body));
        assert!(found.is_empty(), "wrongly refused: {found:?}");
    }
}
