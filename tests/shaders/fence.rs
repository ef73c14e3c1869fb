//! The fence rule: no float product may reach a float addition or subtraction, or a compiler may contract the two into
//! one rounding and the digits change.
//!
//! Sums are not followed into later products: contraction merges a product into the addition *after* it, and nothing
//! else that WGSL allows changes a sum of exact terms.

use naga::{
    AddressSpace, BinaryOperator, Binding, Expression, Handle, Literal, MathFunction, StorageAccess,
    TypeInner,
};

use crate::flow::{Body, Flow, Level, Rule, bodies};
use crate::operands::operands;
use crate::{Shader, shaders, snippet};

/// Bits that come from a product by way of integer arithmetic. A compiler could still undo that: `(x << 1) >> 1` is
/// an absolute value.
const MIXED: Level = 1;
/// A product, possibly with another sign, or its bits.
const PRODUCT: Level = 2;

struct FenceRule;

impl Rule for FenceRule {
    fn value(
        &self,
        body: &Body<'_>,
        expr: Handle<Expression>,
        of: &dyn Fn(Handle<Expression>) -> Level,
    ) -> Level {
        let all = || operands(body.expression(expr)).values.into_iter().map(of).max().unwrap_or(0);
        match *body.expression(expr) {
            Expression::Binary { op, left, right } if body.is_float(expr) => match op {
                // A power of two multiplies exactly, so merging that with an addition rounds as often as before. What
                // the other side is stays: x * y * 4 - z may become fma(4 * x, y, -z).
                BinaryOperator::Multiply if power_of_two(body, left) => of(right),
                BinaryOperator::Multiply | BinaryOperator::Divide if power_of_two(body, right) => of(left),
                // A division is a product with a reciprocal on many GPUs, and so is a remainder.
                BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Modulo => PRODUCT,
                _ => 0,
            },
            // The fence. Only a value that nobody can know before the kernel runs hides the bits.
            Expression::Binary { op: BinaryOperator::ExclusiveOr, left, right }
                if unknown(body, left) || unknown(body, right) =>
            {
                0
            }
            Expression::Binary { op, .. } => match op {
                BinaryOperator::And | BinaryOperator::ExclusiveOr | BinaryOperator::InclusiveOr => all(),
                BinaryOperator::Add
                | BinaryOperator::Subtract
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
                | BinaryOperator::ShiftLeft
                | BinaryOperator::ShiftRight => all().min(MIXED),
                // Comparisons and logic: a condition is no number.
                _ => 0,
            },
            Expression::Math { fun, arg, .. } if body.is_float(arg) || body.is_float(expr) => match fun {
                // Fused multiply-adds take no floor of one operand, so a rounded one is a new number.
                MathFunction::Floor | MathFunction::Ceil | MathFunction::Trunc | MathFunction::Round => 0,
                MathFunction::Abs => of(arg),
                _ => PRODUCT,
            },
            // A conversion between integers and floats computes a new number. A bitcast does not.
            Expression::As { expr: from, convert: Some(_), .. }
                if body.is_float(from) != body.is_float(expr) =>
            {
                0
            }
            Expression::Relational { .. } | Expression::ArrayLength(_) => 0,
            _ => all(),
        }
    }

    fn builtin(&self, _: Option<&Binding>) -> Level {
        0
    }

    fn load(&self, _: AddressSpace, stored: Level, _: Level) -> Level {
        stored
    }

    fn store(&self, space: AddressSpace, value: Level, _: Level) -> Level {
        // `apply` writes gradients as integers and reads them back. Undoing integer arithmetic across a buffer that
        // other invocations see is beyond any compiler; forwarding a stored product is not.
        match space {
            AddressSpace::Storage { .. } if value == MIXED => 0,
            _ => value,
        }
    }
}

/// Whether every component is a compile-time power of two, so that a product with it is exact.
fn power_of_two(body: &Body<'_>, expr: Handle<Expression>) -> bool {
    fn all(arena: &naga::Arena<Expression>, module: &naga::Module, expr: Handle<Expression>) -> bool {
        match arena[expr] {
            Expression::Literal(Literal::F32(v)) => v.is_normal() && v.to_bits() & 0x7f_ffff == 0,
            Expression::Constant(c) => all(&module.global_expressions, module, module.constants[c].init),
            Expression::Splat { value, .. } => all(arena, module, value),
            Expression::Compose { ref components, .. } => components.iter().all(|&c| all(arena, module, c)),
            _ => false,
        }
    }
    all(&body.function.expressions, &body.shader.module, expr)
}

/// Whether a value was loaded from a buffer that this kernel cannot write.
fn unknown(body: &Body<'_>, expr: Handle<Expression>) -> bool {
    match *body.expression(expr) {
        Expression::Load { pointer } => match body.space(pointer) {
            AddressSpace::Uniform => true,
            AddressSpace::Storage { access } => access == StorageAccess::LOAD,
            _ => false,
        },
        Expression::Splat { value, .. } => unknown(body, value),
        Expression::AccessIndex { base, .. } => unknown(body, base),
        Expression::Swizzle { vector, .. } => unknown(body, vector),
        Expression::Compose { ref components, .. } => components.iter().all(|&c| unknown(body, c)),
        _ => false,
    }
}

/// The float additions that a product can reach, and what cannot be judged because it adds inside.
fn violations(shader: &Shader) -> Vec<String> {
    let flow = Flow::run(shader, FenceRule);
    let mut found = Vec::new();
    for body in bodies(shader) {
        for (handle, expression) in body.function.expressions.iter() {
            let bad = match *expression {
                Expression::Binary { op, left, right } if body.is_float(handle) => match op {
                    BinaryOperator::Add | BinaryOperator::Subtract => {
                        flow.level(body.site, left).max(flow.level(body.site, right)) > 0
                    }
                    BinaryOperator::Multiply => {
                        [left, right].iter().any(|&e| matches!(body.type_of(e), TypeInner::Matrix { .. }))
                    }
                    // x - y * trunc(x / y)
                    BinaryOperator::Modulo => true,
                    _ => false,
                },
                Expression::Math { fun, arg, .. } if body.is_float(arg) || body.is_float(handle) => {
                    !matches!(
                        fun,
                        MathFunction::Floor
                            | MathFunction::Ceil
                            | MathFunction::Trunc
                            | MathFunction::Round
                            | MathFunction::Abs
                    )
                }
                _ => false,
            };
            if bad {
                found.push(body.describe(handle));
            }
        }
    }
    found
}

#[test]
fn no_product_reaches_a_sum_unfenced() {
    for shader in shaders() {
        let found = violations(shader);
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// A walk that never meets a product would pass whatever the kernels say. The other kernels have none to meet.
#[test]
fn the_kernels_have_products_and_sums_to_judge() {
    for shader in shaders() {
        let flow = Flow::run(shader, FenceRule);
        let products: usize = bodies(shader)
            .iter()
            .map(|body| {
                let all = body.function.expressions.iter();
                all.filter(|&(e, _)| body.is_float(e) && flow.level(body.site, e) == PRODUCT).count()
            })
            .sum();
        // What an L1 norm adds up of f16 is widened by integers, and nothing multiplied.
        let l1_f16 = shader.name.starts_with("L1Partials(F16");
        let multiplies = shader.is_any(&[
            "NormPartials",
            "L1Partials",
            "Apply",
            "ApplyEach",
            "ApplyCounted",
            "ApplyEachCounted",
        ]) && !l1_f16;
        assert_eq!(products > 0, multiplies, "{}: {products} float products found", shader.name);
    }
}

/// Nothing can be merged into the subtraction of `delta_norm`: both sides are the bits of stored words, and no product
/// is anywhere near. f16 has one more, exact, that widens its subnormals.
#[test]
fn delta_norm_subtracts_stored_words() {
    for shader in shaders().iter().filter(|s| s.is_any(&["DeltaNorm"])) {
        let mut sums = 0;
        for body in bodies(shader) {
            for (handle, expression) in body.function.expressions.iter() {
                let Expression::Binary { left, right, .. } = *expression else { continue };
                if !body.is_float(handle) {
                    continue;
                }
                sums += 1;
                for operand in [left, right] {
                    let stored = matches!(
                        body.expression(operand),
                        Expression::As { convert: None, .. }
                            | Expression::Literal(_)
                            | Expression::Splat { .. }
                    );
                    assert!(stored, "{}", body.describe(operand));
                }
            }
        }
        assert_eq!(sums, if shader.name.contains("F16") && !shader.name.contains("Bf16") { 2 } else { 1 });
    }
}

/// Taking the fence away from the real kernel must be noticed.
#[test]
fn every_norm_partials_depends_on_its_fence() {
    for shader in shaders().iter().filter(|s| s.is_any(&["NormPartials", "L1Partials"])) {
        let open = shader.source.replace(" ^ vec4<u32>(dispatch.zero)", "").replace(" ^ dispatch.zero", "");
        assert_ne!(open, shader.source, "{}: the fence is written in another way now", shader.name);
        let found = violations(&Shader::new(&shader.name, &open));
        match shader.name.as_str() {
            name if name.starts_with("L1Partials(F16") => assert_eq!(found, [""; 0]),
            name if name.starts_with("NormPartials(F16") => {
                assert!(found.iter().any(|v| v.contains("fn put: held.h0 + v")), "{name}: {found:#?}");
            }
            name => assert!(found.iter().any(|v| v.contains("fn add_digits")), "{name}: {found:#?}"),
        }
    }
}

/// What an accumulator of f16 rounds off is found by taking it off again, which a compiler that reorders sums takes for
/// nothing. Only the last sum, which is exact, stays open.
#[test]
fn every_accumulator_of_f16_is_fenced() {
    for shader in shaders()
        .iter()
        .filter(|s| s.name.starts_with("NormPartials(F16") || s.name.starts_with("L1Partials(F16"))
    {
        let put = shader.source.split("fn put(").nth(1).and_then(|text| text.split("\n}\n").next()).unwrap();
        let levels = if shader.is_any(&["NormPartials"]) { 4 } else { 2 };
        let (sums, fenced) = (put.matches("(held.h").count(), put.matches(" = fence(held.h").count());
        assert_eq!(
            (fenced, sums, put.matches(" - held.h").count()),
            (levels - 1, levels - 1, levels - 1),
            "{put}"
        );
    }
}

#[test]
fn unfenced_products_are_found() {
    let items = "
        struct Pair { a: f32, b: f32 }
        const THREE = 3.0;
        fn square(v: f32) -> f32 { return v * v; }
        fn less(v: f32, w: f32) -> f32 { return v - w; }
        fn twice_removed(v: f32) -> f32 { return square(v); }
        fn put(to: ptr<function, f32>, v: f32) { *to = v * v; }
        fn take(at: ptr<function, f32>, w: f32) -> f32 { return *at - w; }
        fn fence(v: f32) -> f32 { return bitcast<f32>(bitcast<u32>(v) ^ u.zero); }
        fn half_fence(v: f32, open: bool) -> f32 { if open { return v; } return fence(v); }";
    for body in [
        "data[0] = x * x - y;",
        "data[0] = y + x * x;",
        "data[0] += x * y;",
        "data[0] = x * THREE + y;",
        "data[0] = x / y + 1.0;",
        "data[0] = x * x * 4.0 - y;",
        "data[0] = x * x / 4.0 - y;",
        "data[0] = vec2<f32>(x * 0.0, y).x + y;",
        "data[0] = -(x * x) + y;",
        "data[0] = abs(x * y) + y;",
        "let p = x * x; let q = p; data[0] = q - y;",
        "var p = x * x; p = p; data[0] = p - y;",
        "var p = 0.0; for (var i = 0u; i < 4u; i += 1u) { data[i] = p - y; p = x * x; }",
        "data[0] = square(x) - y;",
        "data[0] = twice_removed(x) - y;",
        "data[0] = less(x * x, y);",
        "data[0] = less(y, square(x));",
        "var p = 0.0; put(&p, x); data[0] = p + y;",
        "var p = x * y; data[0] = take(&p, y);",
        "data[0] = select(y, x * x, lane == 0u) - y;",
        "let v = vec4<f32>(x) * y; data[0] = (v.wzyx - vec4<f32>(y)).x;",
        "var v = vec4<f32>(); v[lane] = x * y; data[0] = v[1] - y;",
        "var v = array<f32, 4>(); v[lane] = x * y; data[0] = v[1] - y;",
        "let s = Pair(x * x, y); data[0] = s.a - s.b;",
        "var s = Pair(x, y); s.a *= y; data[0] = s.a - y;",
        "kept = x * x; data[0] = kept - y;",
        "data[lane] = x * x; data[lane + 1u] = data[lane] - y;",
        "shared_words[lane] = bitcast<u32>(x * x); data[0] = bitcast<f32>(shared_words[lane]) - y;",
        "data[0] = bitcast<f32>(bitcast<u32>(x * x)) - y;",
        "data[0] = bitcast<f32>(bitcast<u32>(x * x) ^ 0u) - y;",
        "let zero = 0u; data[0] = bitcast<f32>(bitcast<u32>(x * x) ^ zero) - y;",
        "var zero = 0u; data[0] = bitcast<f32>(bitcast<u32>(x * x) ^ zero) - y;",
        "data[0] = bitcast<f32>(bitcast<u32>(x * x) ^ (u.zero & 0u)) - y;",
        "out_words[9] = 0u; data[0] = bitcast<f32>(bitcast<u32>(x * x) ^ out_words[9]) - y;",
        "data[0] = bitcast<f32>(bitcast<u32>(x * x) & 0x7fffffffu) - y;",
        "data[0] = bitcast<f32>(bitcast<u32>(x * x) | 0x80000000u) - y;",
        "data[0] = bitcast<f32>((bitcast<u32>(x * x) << 1u) >> 1u) - y;",
        "data[0] = bitcast<f32>(max(bitcast<u32>(x * x), 5u)) - y;",
        "data[0] = x * x - fence(x * x);",
        "data[0] = half_fence(x * x, lane == 0u) - y;",
        "data[0] = fma(x, x, y);",
        "data[0] = mix(x, y, 0.5);",
        "data[0] = dot(vec2<f32>(x), vec2<f32>(y));",
        "data[0] = fract(x * x);",
        "data[0] = x % y;",
        "data[0] = length(vec2<f32>(x, y));",
        "data[0] = unpack4x8unorm(words[0]).x;",
        "data[0] = (mat2x2<f32>(x, y, x, y) * vec2<f32>(x, y)).x;",
    ] {
        assert!(!violations(&snippet(items, body)).is_empty(), "not noticed: {body}");
    }
}

#[test]
fn exact_and_fenced_products_pass() {
    let items = "
        const SCALE = 4194304.0;
        fn fence(v: f32) -> f32 { return bitcast<f32>(bitcast<u32>(v) ^ u.zero); }
        fn fence_2(v: vec2<f32>) -> vec2<f32> {
            return bitcast<vec2<f32>>(vec2<u32>(words[3], u.zero) ^ bitcast<vec2<u32>>(v));
        }
        fn less(v: f32, w: f32) -> f32 { return v - w; }";
    for body in [
        "res[0] = x * x;",
        "res[0] = (x + y) * y;",
        "res[0] = x * 4194304.0 - y;",
        "res[0] = SCALE * x - y;",
        "res[0] = x / 0.25 - y;",
        "res[0] = (vec2<f32>(x) * vec2<f32>(2.0, 0.5) - vec2<f32>(y)).y;",
        "res[0] = fence(x * x) - y;",
        "res[0] = bitcast<f32>(bitcast<u32>(x * x) ^ words[7]) - y;",
        "res[0] = (fence_2(vec2<f32>(x * x, y)) - vec2<f32>(y)).x;",
        "var p = x * x; p = p * y; let q = fence(p); res[0] = less(q, y);",
        "res[0] = floor(x * x) - y;",
        "res[0] = (x - floor(x)) * 4194304.0 - y;",
        "res[0] = f32(bitcast<u32>(x * x)) - y;",
        "out_words[0] = bitcast<u32>(x * x) >> 16u; res[0] = bitcast<f32>(out_words[0] << 16u) - y;",
        "if x * x == y { res[0] = x - y; }",
    ] {
        let found = violations(&snippet(items, body));
        assert!(found.is_empty(), "wrongly refused: {found:?}");
    }
}
