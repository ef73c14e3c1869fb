//! `steps.json` and `clips.json`: inputs of a step with exact answers.

use std::path::Path;

use gradclip::{ClipNorm, ClipValue, Error, Format, LossScale, NormType, R24, TensorClip};
use serde::Deserialize;

use super::limit::Limit;

/// The cases that the repository ships: the L2 norm of all tensors.
pub const BUILT_IN: &str = include_str!("../../tests/data/steps.json");
/// And the other norms and limits.
pub const CLIPS: &str = include_str!("../../tests/data/clips.json");

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    scale: f32,
    max_norm: Option<Number>,
    #[serde(default)]
    eps: f32,
    /// L2 where it is not told.
    norm_type: Option<String>,
    #[serde(default)]
    each_tensor: bool,
    clip_value: Option<Number>,
    tensors: Vec<Bits>,
    expect: Expected,
}

/// JSON has no infinity: it is the text "inf".
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Number {
    Number(f32),
    Text(String),
}

#[derive(Debug, Deserialize)]
struct Bits {
    format: String,
    bits: String,
}

/// Significand and exponent.
type Exact = (u32, i32);

#[derive(Debug, Deserialize)]
struct Expected {
    found_inf: bool,
    overflow: bool,
    norm: Exact,
    coefficient: Exact,
    factor: Exact,
    nonfinite: Vec<(u64, u64, u64, Option<u64>)>,
    tensors: Vec<String>,
    /// Norm and coefficient of each tensor that was limited by itself.
    #[serde(default)]
    each: Vec<(Option<Exact>, Exact)>,
}

/// What a step starts from.
#[derive(Debug, Clone)]
pub struct Input {
    pub name: String,
    pub scale: LossScale,
    /// Of all tensors.
    pub clip: Option<ClipNorm>,
    /// Format and bytes of each tensor.
    pub tensors: Vec<(Format, Vec<u8>)>,
}

/// A case made ready: every number parsed and every domain checked.
#[derive(Debug, Clone)]
pub struct Step {
    pub input: Input,
    pub limit: Limit,
    pub expect: Answer,
}

/// What a step returned, or has to return.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub found_inf: bool,
    pub overflow: bool,
    pub norm: f64,
    pub coefficient: f64,
    pub factor: f64,
    pub nonfinite: Vec<gradclip::Nonfinite>,
    pub tensors: Vec<Vec<u8>>,
    /// Of tensors that were limited one by one.
    pub each: Vec<TensorClip>,
}

/// Every case that the repository ships.
pub fn built_in() -> Result<Vec<Step>, String> {
    Ok([parse(BUILT_IN)?, parse(CLIPS)?].concat())
}

/// Reads cases from JSON text.
pub fn parse(json: &str) -> Result<Vec<Step>, String> {
    let cases: Vec<Case> = serde_json::from_str(json).map_err(|e| e.to_string())?;
    cases
        .into_iter()
        .map(|case| {
            let name = case.name.clone();
            case.ready().map_err(|e| format!("{name}: {e}"))
        })
        .collect()
}

/// Reads cases from a file.
pub fn read(path: &Path) -> Result<Vec<Step>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

impl Case {
    fn ready(self) -> Result<Step, String> {
        let own = |e: Error| e.to_string();
        let norm_type = norm_type(self.norm_type.as_deref())?;
        let clip = |m| Ok(ClipNorm::new(m)?.with_eps(self.eps)?.with_norm_type(norm_type));
        let clip = self.max_norm.map(Number::get).transpose()?.map(clip).transpose().map_err(own)?;
        let value = self.clip_value.map(Number::get).transpose()?;
        let limit = match (value, self.each_tensor, clip) {
            (None, false, clip) => Limit::Norm(clip),
            (None, true, Some(clip)) => Limit::EachTensor(clip),
            (Some(value), false, None) => Limit::Value(ClipValue::new(value).map_err(own)?),
            _ => return Err("not one limit".into()),
        };
        let scale = LossScale::new(self.scale).map_err(own)?;
        let formats: Vec<Format> =
            self.tensors.iter().map(|t| format(&t.format)).collect::<Result<_, _>>()?;
        let bytes = |texts: Vec<String>| -> Result<Vec<Vec<u8>>, String> {
            if texts.len() != formats.len() {
                return Err(format!("{} tensors, {} results", formats.len(), texts.len()));
            }
            formats.iter().zip(&texts).map(|(&f, t)| words(f, t)).collect()
        };
        let inputs = bytes(self.tensors.into_iter().map(|t| t.bits).collect())?;
        let exact = |(significand, exponent)| R24 { significand, exponent };
        let r24 = |number| exact(number).to_f64();
        let each = |(norm, coefficient): (Option<_>, _)| TensorClip {
            norm: norm.map(exact),
            coefficient: exact(coefficient),
        };
        let nonfinite = |(nan, pos_inf, neg_inf, first)| gradclip::Nonfinite { nan, pos_inf, neg_inf, first };
        let expect = Answer {
            found_inf: self.expect.found_inf,
            overflow: self.expect.overflow,
            norm: r24(self.expect.norm),
            coefficient: r24(self.expect.coefficient),
            factor: r24(self.expect.factor),
            nonfinite: self.expect.nonfinite.into_iter().map(nonfinite).collect(),
            tensors: bytes(self.expect.tensors)?,
            each: self.expect.each.into_iter().map(each).collect(),
        };
        let tensors = formats.iter().copied().zip(inputs).collect();
        let clip = clip.filter(|_| !self.each_tensor);
        Ok(Step { input: Input { name: self.name, scale, clip, tensors }, limit, expect })
    }
}

impl Number {
    fn get(self) -> Result<f32, String> {
        match self {
            Self::Number(n) => Ok(n),
            Self::Text(t) => t.parse().map_err(|_| format!("\"{t}\" is no number")),
        }
    }
}

fn norm_type(name: Option<&str>) -> Result<NormType, String> {
    let Some(name) = name else { return Ok(NormType::L2) };
    let all = [NormType::L1, NormType::L2, NormType::Linf];
    all.into_iter().find(|n| n.to_string() == name).ok_or_else(|| format!("unknown norm \"{name}\""))
}

fn format(name: &str) -> Result<Format, String> {
    Format::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| format!("unknown format \"{name}\""))
}

fn words(format: Format, text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let bits = u32::from_str_radix(word, 16).map_err(|_| format!("bits \"{word}\""))?;
        bytes.extend_from_slice(&bits.to_le_bytes()[..format.size() as usize]);
    }
    Ok(bytes)
}
