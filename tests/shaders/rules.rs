//! What no kernel may contain, because drivers differ in it.

use naga::{
    BinaryOperator, Expression, Literal, MathFunction, RelationalFunction, ScalarKind, Statement, TypeInner,
};

use crate::flow::{Body, bodies};
use crate::{Shader, shaders, snippet};

/// Why a float expression could go wrong on a NaN or an infinity.
fn meets_nan(body: &Body<'_>, expression: &Expression) -> Option<&'static str> {
    use BinaryOperator::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    use MathFunction::{Clamp, FaceForward, Max, Min, Saturate, Sign, SmoothStep, Step};
    match *expression {
        Expression::Binary {
            op: Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual, left, ..
        } if body.is_float(left) => Some("compares floats"),
        Expression::Math {
            fun: Min | Max | Clamp | Saturate | Sign | Step | SmoothStep | FaceForward,
            arg,
            ..
        } if body.is_float(arg) => Some("compares floats inside"),
        Expression::Relational { fun: RelationalFunction::IsNan | RelationalFunction::IsInf, .. } => {
            Some("tests a float for NaN or infinity")
        }
        _ => None,
    }
}

/// Why an expression is not the same on every driver.
fn differs(body: &Body<'_>, expression: &Expression) -> Option<&'static str> {
    match *expression {
        Expression::Literal(Literal::F32(v)) if !v.is_finite() => Some("a literal that is not finite"),
        // WGSL makes it an error as soon as it is a constant expression, and compilers fold it if it is not.
        Expression::As { expr, kind: ScalarKind::Float, convert: None } if nonfinite_bits(body, expr) => {
            Some("constant bits of a NaN or an infinity")
        }
        Expression::As { expr, kind: ScalarKind::Uint | ScalarKind::Sint, convert: Some(_) }
            if body.is_float(expr) =>
        {
            Some("converts a float to an integer")
        }
        Expression::Math {
            fun:
                MathFunction::QuantizeToF16
                | MathFunction::Pack2x16float
                | MathFunction::Unpack2x16float
                | MathFunction::Sqrt
                | MathFunction::InverseSqrt,
            ..
        } => Some("rounds as the driver likes"),
        Expression::Binary { op: BinaryOperator::Divide | BinaryOperator::Modulo, left, .. }
            if body.is_float(left) =>
        {
            Some("a float division, which may be 2.5 ulp off")
        }
        Expression::Derivative { .. } => Some("a derivative"),
        Expression::SubgroupBallotResult | Expression::SubgroupOperationResult { .. } => Some("subgroups"),
        Expression::ArrayLength(_) => Some("arrayLength, which wraps on Metal"),
        Expression::Override(_) => Some("an override"),
        _ => None,
    }
}

fn nonfinite_bits(body: &Body<'_>, expr: naga::Handle<Expression>) -> bool {
    fn any(arena: &naga::Arena<Expression>, module: &naga::Module, expr: naga::Handle<Expression>) -> bool {
        match arena[expr] {
            Expression::Literal(Literal::U32(bits)) => !f32::from_bits(bits).is_finite(),
            Expression::Literal(Literal::I32(bits)) => !f32::from_bits(bits as u32).is_finite(),
            Expression::Constant(c) => any(&module.global_expressions, module, module.constants[c].init),
            Expression::Splat { value, .. } => any(arena, module, value),
            Expression::Compose { ref components, .. } => components.iter().any(|&c| any(arena, module, c)),
            _ => false,
        }
    }
    any(&body.function.expressions, &body.shader.module, expr)
}

fn found(shader: &Shader, why: impl Fn(&Body<'_>, &Expression) -> Option<&'static str>) -> Vec<String> {
    let mut found = Vec::new();
    for body in bodies(shader) {
        for (handle, expression) in body.function.expressions.iter() {
            if let Some(why) = why(&body, expression) {
                found.push(format!("{}: {why}", body.describe(handle)));
            }
        }
    }
    found
}

/// Types that need a feature, or that some backend lacks.
fn odd_types(shader: &Shader) -> Vec<String> {
    let types = shader.module.types.iter().map(|(_, ty)| &ty.inner);
    types
        .filter(|inner| match **inner {
            TypeInner::Scalar(s) | TypeInner::Vector { scalar: s, .. } => {
                s.width != 4 && s.kind != ScalarKind::Bool
            }
            TypeInner::Atomic(s) => s.width != 4 || s.kind == ScalarKind::Float,
            TypeInner::Array { .. } | TypeInner::Struct { .. } | TypeInner::Pointer { .. } => false,
            _ => true,
        })
        .map(|inner| format!("{}: {inner:?}", shader.name))
        .collect()
}

fn statements<'a>(block: &'a naga::Block, visit: &mut dyn FnMut(&'a Statement)) {
    for statement in block.iter() {
        visit(statement);
        match statement {
            Statement::Block(block) => statements(block, visit),
            Statement::If { accept, reject, .. } => {
                statements(accept, visit);
                statements(reject, visit);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|case| statements(&case.body, visit)),
            Statement::Loop { body, continuing, .. } => {
                statements(body, visit);
                statements(continuing, visit);
            }
            _ => {}
        }
    }
}

/// Also I01 and I02 from the side of the text: detection can only be by integers where no float is ever compared.
#[test]
fn i04_no_float_is_compared() {
    for shader in shaders() {
        let found = found(shader, meets_nan);
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Whether a variable of this name holds gradients, parameters or what they changed by.
fn holds_elements(name: &str) -> bool {
    name.starts_with("window_") || ["parameters", "scratch"].contains(&name)
}

/// The other half of I04: gradients and parameters come in as u32.
#[test]
fn i04_gradients_are_bound_as_words() {
    for shader in shaders() {
        let windows: Vec<_> = shader
            .module
            .global_variables
            .iter()
            .filter(|(_, g)| g.name.as_deref().is_some_and(holds_elements))
            .collect();
        let touches_tensors = shader.is_any(&[
            "NormPartials",
            "L1Partials",
            "Apply",
            "ApplyEach",
            "ApplyCounted",
            "ApplyEachCounted",
            "DeltaNorm",
        ]);
        assert_eq!(!windows.is_empty(), touches_tensors, "{}", shader.name);
        for (_, window) in windows {
            let TypeInner::Array { base, .. } = shader.module.types[window.ty].inner else {
                panic!("{}: a window that is no array", shader.name);
            };
            let scalar = shader.module.types[base].inner.scalar();
            assert_eq!(scalar, Some(naga::Scalar::U32), "{}", shader.name);
            let quads = shader.module.types[base].inner
                == TypeInner::Vector { size: naga::VectorSize::Quad, scalar: naga::Scalar::U32 };
            assert_eq!(quads, shader.name.contains("Quads"), "{}", shader.name);
        }
    }
}

/// No NaN or infinity in the text, nothing that rounds as the driver likes, no float-to-integer conversion.
#[test]
fn i06_nothing_depends_on_the_driver() {
    for shader in shaders() {
        let found = found(shader, differs);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn i06_no_constant_of_a_shader_is_nonfinite() {
    for shader in shaders() {
        for (_, expression) in shader.module.global_expressions.iter() {
            if let Expression::Literal(Literal::F32(v)) = *expression {
                assert!(v.is_finite(), "{}: {v}", shader.name);
            }
            let bitcast = matches!(expression, Expression::As { convert: None, kind: ScalarKind::Float, .. });
            assert!(!bitcast, "{}: a constant is cast from bits", shader.name);
        }
    }
}

#[test]
fn h08_array_length_is_never_asked() {
    for shader in shaders() {
        assert!(!shader.source.contains("arrayLength"), "{}", shader.name);
    }
}

#[test]
fn types_are_32_bits_wide_and_need_no_feature() {
    for shader in shaders() {
        let odd = odd_types(shader);
        assert!(odd.is_empty(), "{odd:#?}");
        assert!(shader.module.overrides.is_empty(), "{}: an override", shader.name);
        for word in ["enable ", "requires ", "f16>", "subgroup"] {
            assert!(!shader.source.contains(word), "{}: says {word:?}", shader.name);
        }
    }
}

/// Without subgroups there is no second path to fall back from, and no subgroup size to trust.
#[test]
fn k04_k06_no_kernel_uses_subgroups() {
    for shader in shaders() {
        for body in bodies(shader) {
            statements(&body.function.body, &mut |statement| {
                let subgroup = matches!(
                    statement,
                    Statement::SubgroupBallot { .. }
                        | Statement::SubgroupGather { .. }
                        | Statement::SubgroupCollectiveOperation { .. }
                );
                assert!(!subgroup, "{}: {statement:?}", shader.name);
            });
        }
    }
}

/// Indirect dispatches cost a hidden validation dispatch each: the kernels return early instead.
#[test]
fn o01_no_indirect_dispatch() {
    fn visit(folder: &std::path::Path, seen: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, seen);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for word in ["dispatch_workgroups_indirect", "BufferUsages::INDIRECT"] {
                    assert!(!text.contains(word), "{}: {word}", path.display());
                }
                *seen += usize::from(text.contains("dispatch_workgroups("));
            }
        }
    }
    let mut seen = 0;
    visit(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut seen);
    assert!(seen > 0, "no dispatch at all: the sources have moved");
}

#[test]
fn i04_comparisons_that_a_nan_could_reach_are_found() {
    let items = "fn same(v: vec2<f32>) -> vec2<bool> { return v == v; }";
    for body in [
        "if x != x { data[0] = 0.0; }",
        "if abs(x) < 3.4e38 { data[0] = 0.0; }",
        "if all(same(vec2<f32>(x, y))) { data[0] = 0.0; }",
        "data[0] = select(0.0, x, x >= y);",
        "data[0] = max(x, y);",
        "data[0] = min(x, 1.0);",
        "data[0] = clamp(x, 0.0, 1.0);",
        "data[0] = saturate(x);",
        "data[0] = sign(x);",
        "data[0] = step(x, y);",
    ] {
        assert!(!found(&snippet(items, body), meets_nan).is_empty(), "not noticed: {body}");
    }
    for body in ["if bitcast<u32>(x) >= 0x7f800000u { return; }", "out_words[0] = max(lane, 3u);"] {
        let found = found(&snippet("", body), meets_nan);
        assert!(found.is_empty(), "wrongly refused: {found:?}");
    }
}

#[test]
fn i06_what_depends_on_the_driver_is_found() {
    for body in [
        "out_words[0] = u32(x);",
        "out_words[0] = bitcast<u32>(i32(floor(x)));",
        "let bits = 0x7f800000u; data[0] = bitcast<f32>(bits);",
        "data[0] = sqrt(x);",
        "data[0] = x / y;",
        "out_words[0] = pack2x16float(vec2<f32>(x, y));",
        "data[0] = unpack2x16float(words[0]).x;",
        "out_words[0] = arrayLength(&words);",
    ] {
        assert!(!found(&snippet("", body), differs).is_empty(), "not noticed: {body}");
    }
    let exact = found(&snippet("", "data[0] = f32(lane) * bitcast<f32>((254u - lane) << 23u);"), differs);
    assert!(exact.is_empty(), "wrongly refused: {exact:?}");
}
