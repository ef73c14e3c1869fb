//! Which expressions an expression is made of, which naga does not list by itself.

use naga::{Expression, Handle};

/// Operands whose value can become part of the result. Conditions and indices are listed apart.
pub struct Operands {
    pub values: Vec<Handle<Expression>>,
    pub choices: Vec<Handle<Expression>>,
}

/// Fails on expressions that no compute kernel of this crate has a use for.
pub fn operands(expression: &Expression) -> Operands {
    let mut choices = Vec::new();
    let values = match *expression {
        Expression::Literal(_)
        | Expression::Constant(_)
        | Expression::ZeroValue(_)
        | Expression::FunctionArgument(_)
        | Expression::GlobalVariable(_)
        | Expression::LocalVariable(_)
        | Expression::CallResult(_)
        | Expression::AtomicResult { .. }
        | Expression::WorkGroupUniformLoadResult { .. } => vec![],
        Expression::Compose { ref components, .. } => components.clone(),
        Expression::Access { base, index } => {
            choices.push(index);
            vec![base]
        }
        Expression::AccessIndex { base, .. } => vec![base],
        Expression::Splat { value, .. } => vec![value],
        Expression::Swizzle { vector, .. } => vec![vector],
        Expression::Load { pointer } => vec![pointer],
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => vec![expr],
        Expression::Derivative { expr, .. } => vec![expr],
        Expression::Binary { left, right, .. } => vec![left, right],
        Expression::Select { condition, accept, reject } => {
            choices.push(condition);
            vec![accept, reject]
        }
        Expression::Relational { argument, .. } => vec![argument],
        Expression::Math { arg, arg1, arg2, arg3, .. } => {
            [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect()
        }
        Expression::ArrayLength(array) => vec![array],
        ref other => panic!("no kernel uses {other:?}"),
    };
    Operands { values, choices }
}
