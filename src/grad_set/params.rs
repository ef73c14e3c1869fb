//! What a step is told, as the GPU reads it.

use crate::limit::{AnyLimit, Rule};
use crate::{ClipNorm, ClipValue, Error, Format, Ledger, NormType, Scalar, Unscale, Word};

/// Numbers that may come from buffers, in the order of `NUMBER_*` in `step.wgsl`.
const NUMBERS: usize = 6;

const IN_PLACE: u32 = 1;
const SCALE_OF_SCALER: u32 = 2;
const UPDATED: u32 = 4;
const CONTINUED: u32 = 8;

/// A step as it is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    pub unscale: &'a Unscale,
    pub limit: &'a AnyLimit,
    /// The state of the scaler whose step it is, as `Step` kernels bind it.
    pub scaler: Option<&'a wgpu::BindGroup>,
    pub in_place: bool,
}

/// The twin of `struct Step` in `step.wgsl`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct StepUniform {
    numbers: [f32; NUMBERS],
    from_words: u32,
    norm_type: u32,
    rule: u32,
    flags: u32,
    clip: [f32; 3],
    ticket: u32,
    merged_nonfinite: u32,
    merged_overflow: u32,
    merged_significand: u32,
    merged_exponent: i32,
    joined: u32,
}

/// The words of a step, by number.
pub(crate) type Words<'a> = [Option<&'a Word>; NUMBERS];

impl<'a> Told<'a> {
    /// Checks what the host knows.
    pub fn check(&self) -> Result<(), Error> {
        if self.scaler.is_none() {
            self.unscale.check()?;
        } else {
            self.unscale.divisor.check(|d| d > 0.0 && d.is_finite(), Error::Divisor)?;
        }
        self.limit.check()
    }

    fn numbers(&self) -> [Option<&'a Scalar>; NUMBERS] {
        let (max_norm, given) = match &self.limit.rule {
            Rule::None | Rule::Value(_) => (None, None),
            Rule::Norm(max_norm) | Rule::EachTensor(max_norm) => (Some(max_norm), None),
            Rule::GivenNorm { norm, max_norm } => (Some(max_norm), Some(norm)),
            Rule::Coefficient(coefficient) => (None, Some(coefficient)),
        };
        let scale = self.scaler.is_none().then_some(&self.unscale.scale);
        let limit = &self.limit;
        [scale, Some(&self.unscale.divisor), max_norm, Some(&limit.eps), limit.skip_above.as_ref(), given]
    }

    /// The numbers that come from buffers.
    pub fn words(&self) -> Words<'a> {
        self.numbers().map(|number| match number {
            Some(Scalar::Word(word)) => Some(word),
            _ => None,
        })
    }

    pub fn uniform(&self) -> StepUniform {
        // What a number is where the step has none.
        const DEFAULTS: [f32; NUMBERS] = [1.0, 1.0, f32::INFINITY, 0.0, f32::INFINITY, 0.0];
        let numbers = self.numbers();
        let mut values = DEFAULTS;
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = number.and_then(Scalar::value).unwrap_or(*value);
        }
        let words = self.words();
        let from_words = (0..NUMBERS).filter(|&i| words[i].is_some()).fold(0, |bits, i| bits | 1 << i);
        let clip = Format::ALL.map(|format| match self.limit.rule {
            // Checked before.
            Rule::Value(value) => ClipValue::new(value).map_or(f32::INFINITY, |v| v.within(format)),
            _ => f32::INFINITY,
        });
        let under_scaler = if self.scaler.is_some() { SCALE_OF_SCALER | UPDATED } else { 0 };
        StepUniform {
            numbers: values,
            from_words,
            norm_type: norm_code(self.limit.norm_type),
            rule: match self.limit.rule {
                Rule::None | Rule::Norm(_) => 0,
                Rule::GivenNorm { .. } => 1,
                Rule::Coefficient(_) => 2,
                Rule::EachTensor(_) => 3,
                Rule::Value(_) => 4,
            },
            flags: under_scaler | if self.in_place { IN_PLACE } else { 0 },
            clip,
            ..bytemuck::Zeroable::zeroed()
        }
    }
}

impl StepUniform {
    /// A norm of gradients as they are, which changes nothing.
    pub fn measuring(norm_type: NormType) -> Self {
        Self {
            numbers: [1.0, 1.0, f32::INFINITY, 0.0, f32::INFINITY, 0.0],
            norm_type: norm_code(norm_type),
            clip: [f32::INFINITY; 3],
            ..bytemuck::Zeroable::zeroed()
        }
    }

    /// The second limit of a step.
    pub fn continued(clip: ClipNorm) -> Self {
        let mut uniform = Self::measuring(clip.norm_type());
        uniform.numbers[2] = clip.max_norm();
        uniform.numbers[3] = clip.eps();
        uniform.flags = IN_PLACE | CONTINUED;
        uniform
    }

    pub fn with_ticket(self, ticket: u32) -> Self {
        Self { ticket, ..self }
    }

    pub fn with_joined(self, sets: usize) -> Self {
        Self { joined: sets as u32, ..self }
    }

    /// The second half of a sharded step: what all parts found. Its scale is the ledger's.
    pub fn with_merged(self, merged: &Ledger) -> Self {
        let norm = merged.norm_scaled();
        let mut numbers = self.numbers;
        numbers[0] = merged.scale();
        Self {
            numbers,
            flags: self.flags & !SCALE_OF_SCALER,
            merged_nonfinite: u32::from(merged.found_inf()),
            merged_overflow: u32::from(merged.overflowing() > 0),
            merged_significand: norm.significand,
            merged_exponent: norm.exponent,
            ..self
        }
    }
}

fn norm_code(norm_type: NormType) -> u32 {
    match norm_type {
        NormType::Linf => 0,
        NormType::L1 => 1,
        NormType::L2 => 2,
    }
}
