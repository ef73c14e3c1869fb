//! Data flow through a shader: a level per value, the same whatever path it took, raised until nothing changes. It
//! follows variables, pointers, calls in both directions and atomics, and, for rules that ask, branches.

use std::collections::HashMap;

use naga::{
    AddressSpace, Binding, Block, Expression, Function, Handle, Scalar, ScalarKind, Span, Statement,
    TypeInner,
};

use crate::Shader;
use crate::operands::operands;

/// 0: nothing to say. What higher levels mean is up to the rule.
pub type Level = u8;

/// A function, or the entry point.
pub type Site = Option<Handle<Function>>;

/// What a rule says about one step of the flow.
pub trait Rule {
    /// The level of an expression that is neither memory, nor an argument, nor the result of a call.
    fn value(
        &self,
        body: &Body<'_>,
        expr: Handle<Expression>,
        of: &dyn Fn(Handle<Expression>) -> Level,
    ) -> Level;

    /// An argument of the entry point.
    fn builtin(&self, binding: Option<&Binding>) -> Level;

    /// What is read from memory that `stored` was written to, at an index of level `index`.
    fn load(&self, space: AddressSpace, stored: Level, index: Level) -> Level;

    /// What memory holds after `value` was written under a condition of level `control`.
    fn store(&self, space: AddressSpace, value: Level, control: Level) -> Level;
}

/// A function with what naga found out about it.
pub struct Body<'a> {
    pub shader: &'a Shader,
    pub site: Site,
    pub function: &'a Function,
    info: &'a naga::valid::FunctionInfo,
}

impl<'a> Body<'a> {
    fn new(shader: &'a Shader, site: Site) -> Self {
        let (function, info) = match site {
            Some(handle) => (&shader.module.functions[handle], &shader.info[handle]),
            None => (&shader.module.entry_points[0].function, shader.info.get_entry_point(0)),
        };
        Self { shader, site, function, info }
    }

    pub fn expression(&self, expr: Handle<Expression>) -> &'a Expression {
        &self.function.expressions[expr]
    }

    pub fn type_of(&self, expr: Handle<Expression>) -> &'a TypeInner {
        self.info[expr].ty.inner_with(&self.shader.module.types)
    }

    /// The scalars of a number, vector or matrix.
    pub fn scalar(&self, expr: Handle<Expression>) -> Option<Scalar> {
        match *self.type_of(expr) {
            TypeInner::Scalar(s)
            | TypeInner::Vector { scalar: s, .. }
            | TypeInner::Matrix { scalar: s, .. } => Some(s),
            _ => None,
        }
    }

    pub fn is_float(&self, expr: Handle<Expression>) -> bool {
        self.scalar(expr).is_some_and(|s| s.kind == ScalarKind::Float)
    }

    /// "function: text of the expression".
    pub fn describe(&self, expr: Handle<Expression>) -> String {
        let name = self.function.name.as_deref().unwrap_or("main");
        let text = self.shader.text(self.function.expressions.get_span(expr));
        format!("{}: fn {name}: {text}", self.shader.name)
    }

    /// The variable behind a pointer.
    pub fn root(&self, pointer: Handle<Expression>) -> Root {
        match *self.expression(pointer) {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.root(base),
            Expression::LocalVariable(local) => Root::Local(self.site, local),
            Expression::GlobalVariable(global) => Root::Global(global),
            Expression::FunctionArgument(i) => Root::Argument(self.site, i),
            ref other => panic!("{other:?} is no pointer"),
        }
    }

    pub fn space(&self, pointer: Handle<Expression>) -> AddressSpace {
        match *self.type_of(pointer) {
            TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => space,
            ref other => panic!("{other:?} is no pointer"),
        }
    }

    fn is_pointer(&self, expr: Handle<Expression>) -> bool {
        matches!(self.type_of(expr), TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
    }
}

/// Every function that the shader defines, called or not, and the entry point.
pub fn bodies(shader: &Shader) -> Vec<Body<'_>> {
    let functions = shader.module.functions.iter().map(|(handle, _)| Some(handle));
    functions.chain([None]).map(|site| Body::new(shader, site)).collect()
}

/// A variable, as one cell: fields and array elements are not told apart. An argument's cell is its value, or what it
/// points to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Root {
    Local(Site, Handle<naga::LocalVariable>),
    Global(Handle<naga::GlobalVariable>),
    Argument(Site, u32),
}

/// Conditions under which control left a block early.
#[derive(Clone, Copy, Default)]
struct Left {
    returns: Level,
    breaks: Level,
    continues: Level,
}

pub struct Flow<R> {
    rule: R,
    values: HashMap<(Site, Handle<Expression>), Level>,
    cells: HashMap<Root, Level>,
    results: HashMap<Site, Level>,
    entries: HashMap<Site, Level>,
    /// Where a workgroup waits, and the level of the conditions under which it does.
    pub barriers: Vec<(Span, Level)>,
    changed: bool,
}

impl<R: Rule> Flow<R> {
    pub fn run(shader: &Shader, rule: R) -> Self {
        let mut flow = Self {
            rule,
            values: HashMap::new(),
            cells: HashMap::new(),
            results: HashMap::new(),
            entries: HashMap::new(),
            barriers: Vec::new(),
            changed: true,
        };
        while flow.changed {
            flow.changed = false;
            flow.barriers.clear();
            for body in bodies(shader) {
                flow.expressions(&body);
                let control = flow.entries.get(&body.site).copied().unwrap_or(0);
                flow.block(&body, &body.function.body, control);
            }
        }
        flow
    }

    pub fn level(&self, site: Site, expr: Handle<Expression>) -> Level {
        self.values.get(&(site, expr)).copied().unwrap_or(0)
    }

    fn expressions(&mut self, body: &Body<'_>) {
        for (handle, expression) in body.function.expressions.iter() {
            let level = match *expression {
                Expression::FunctionArgument(_) if body.is_pointer(handle) => 0,
                Expression::FunctionArgument(i) if body.site.is_none() => {
                    self.rule.builtin(body.function.arguments[i as usize].binding.as_ref())
                }
                Expression::FunctionArgument(i) => self.cell(Root::Argument(body.site, i)),
                Expression::Load { pointer } => self.load(body, pointer),
                Expression::CallResult(function) => self.results.get(&Some(function)).copied().unwrap_or(0),
                // Set by the statements that they belong to.
                Expression::AtomicResult { .. } | Expression::WorkGroupUniformLoadResult { .. } => 0,
                _ => self.rule.value(body, handle, &|operand| self.level(body.site, operand)),
            };
            self.raise_value(body.site, handle, level);
        }
    }

    fn load(&self, body: &Body<'_>, pointer: Handle<Expression>) -> Level {
        self.rule.load(body.space(pointer), self.cell(body.root(pointer)), self.index(body, pointer))
    }

    /// The highest level of the indices on the way to a place.
    fn index(&self, body: &Body<'_>, pointer: Handle<Expression>) -> Level {
        let operands = operands(body.expression(pointer));
        let here = operands.choices.iter().map(|&index| self.level(body.site, index));
        let before = operands.values.iter().map(|&base| self.index(body, base));
        here.chain(before).max().unwrap_or(0)
    }

    fn store(&mut self, body: &Body<'_>, pointer: Handle<Expression>, value: Level, control: Level) {
        let level = self.rule.store(body.space(pointer), value, control);
        self.raise_cell(body.root(pointer), level);
    }

    /// Follows a block that runs under conditions of level `control`.
    fn block(&mut self, body: &Body<'_>, block: &Block, mut control: Level) -> Left {
        let mut left = Left::default();
        for (statement, &span) in block.span_iter() {
            let now = self.statement(body, statement, span, control);
            left = Left {
                returns: left.returns.max(now.returns),
                breaks: left.breaks.max(now.breaks),
                continues: left.continues.max(now.continues),
            };
            control = control.max(now.returns).max(now.breaks).max(now.continues);
        }
        left
    }

    fn statement(&mut self, body: &Body<'_>, statement: &Statement, span: Span, control: Level) -> Left {
        let site = body.site;
        let mut left = Left::default();
        match *statement {
            Statement::Emit(_) | Statement::MemoryBarrier(_) => {}
            Statement::Block(ref block) => return self.block(body, block, control),
            Statement::If { condition, ref accept, ref reject } => {
                let control = control.max(self.level(site, condition));
                let (a, b) = (self.block(body, accept, control), self.block(body, reject, control));
                left = Left {
                    returns: a.returns.max(b.returns),
                    breaks: a.breaks.max(b.breaks),
                    continues: a.continues.max(b.continues),
                };
            }
            Statement::Switch { selector, ref cases } => {
                let control = control.max(self.level(site, selector));
                for case in cases {
                    let case = self.block(body, &case.body, control);
                    left.returns = left.returns.max(case.returns);
                    left.continues = left.continues.max(case.continues);
                }
            }
            Statement::Loop { body: ref inner, ref continuing, break_if } => {
                // Once around to learn how the loop ends, once more under that condition.
                let mut control = control.max(break_if.map_or(0, |end| self.level(site, end)));
                for _ in 0..2 {
                    let inside = self.block(body, inner, control);
                    self.block(body, continuing, control.max(inside.continues));
                    control = control.max(inside.returns).max(inside.breaks).max(inside.continues);
                    left.returns = left.returns.max(inside.returns);
                }
            }
            Statement::Break => left.breaks = control,
            Statement::Continue => left.continues = control,
            Statement::Return { value } => {
                left.returns = control;
                let value = value.map_or(0, |value| self.level(site, value));
                let level = self.rule.store(AddressSpace::Function, value, control);
                let result = self.results.entry(site).or_default();
                self.changed |= level > *result;
                *result = level.max(*result);
            }
            Statement::ControlBarrier(_) => self.barriers.push((span, control)),
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.barriers.push((span, control));
                // The same for the whole workgroup, whatever it was read from.
                let stored = self.cell(body.root(pointer));
                let level = self.rule.load(AddressSpace::Uniform, stored, self.index(body, pointer));
                self.raise_value(site, result, level);
            }
            Statement::Store { pointer, value } => {
                self.store(body, pointer, self.level(site, value), control);
            }
            Statement::Atomic { pointer, value, result, .. } => {
                self.store(body, pointer, self.level(site, value), control);
                if let Some(result) = result {
                    let level = self.load(body, pointer);
                    self.raise_value(site, result, level);
                }
            }
            Statement::Call { function, ref arguments, .. } => self.call(body, function, arguments, control),
            ref other => panic!("no kernel uses {other:?}"),
        }
        left
    }

    fn call(
        &mut self,
        body: &Body<'_>,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        control: Level,
    ) {
        let callee = Some(function);
        let entry = self.entries.entry(callee).or_default();
        self.changed |= control > *entry;
        *entry = control.max(*entry);
        for (i, &argument) in (0..).zip(arguments) {
            let inside = Root::Argument(callee, i);
            if body.is_pointer(argument) {
                // Caller and callee share what is pointed to.
                let outside = body.root(argument);
                let level = self.cell(inside).max(self.cell(outside));
                self.raise_cell(inside, level);
                self.raise_cell(outside, level);
            } else {
                self.raise_cell(inside, self.level(body.site, argument));
            }
        }
    }

    fn cell(&self, root: Root) -> Level {
        self.cells.get(&root).copied().unwrap_or(0)
    }

    fn raise_cell(&mut self, root: Root, level: Level) {
        let cell = self.cells.entry(root).or_default();
        self.changed |= level > *cell;
        *cell = level.max(*cell);
    }

    fn raise_value(&mut self, site: Site, expr: Handle<Expression>, level: Level) {
        let value = self.values.entry((site, expr)).or_default();
        self.changed |= level > *value;
        *value = level.max(*value);
    }
}
