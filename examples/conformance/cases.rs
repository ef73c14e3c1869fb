//! `steps.json`: inputs of a step with exact answers.

use std::path::Path;

use gradclip::{ClipNorm, Error, Format, LossScale, R24};
use serde::Deserialize;

/// The cases that the repository ships.
pub const BUILT_IN: &str = include_str!("../../tests/data/steps.json");

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    scale: f32,
    max_norm: Option<Limit>,
    eps: f32,
    tensors: Vec<Bits>,
    expect: Expected,
}

/// JSON has no infinity: it is the text "inf".
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Limit {
    Number(f32),
    Text(String),
}

#[derive(Debug, Deserialize)]
struct Bits {
    format: String,
    bits: String,
}

#[derive(Debug, Deserialize)]
struct Expected {
    found_inf: bool,
    overflow: bool,
    norm: (u32, i32),
    coefficient: (u32, i32),
    factor: (u32, i32),
    nonfinite: Vec<(u64, u64, u64, Option<u64>)>,
    tensors: Vec<String>,
}

/// What a step starts from.
#[derive(Debug, Clone)]
pub struct Input {
    pub name: String,
    pub scale: LossScale,
    pub clip: Option<ClipNorm>,
    /// Format and bytes of each tensor.
    pub tensors: Vec<(Format, Vec<u8>)>,
}

/// A case made ready: every number parsed and every domain checked.
#[derive(Debug, Clone)]
pub struct Step {
    pub input: Input,
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
        let max_norm = match self.max_norm {
            None => None,
            Some(Limit::Number(n)) => Some(n),
            Some(Limit::Text(t)) => Some(t.parse().map_err(|_| format!("max_norm \"{t}\""))?),
        };
        let own = |e: Error| e.to_string();
        let clip = max_norm.map(|m| ClipNorm::new(m)?.with_eps(self.eps)).transpose().map_err(own)?;
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
        let r24 = |(significand, exponent)| R24 { significand, exponent }.to_f64();
        let nonfinite = |(nan, pos_inf, neg_inf, first)| gradclip::Nonfinite { nan, pos_inf, neg_inf, first };
        let expect = Answer {
            found_inf: self.expect.found_inf,
            overflow: self.expect.overflow,
            norm: r24(self.expect.norm),
            coefficient: r24(self.expect.coefficient),
            factor: r24(self.expect.factor),
            nonfinite: self.expect.nonfinite.into_iter().map(nonfinite).collect(),
            tensors: bytes(self.expect.tensors)?,
        };
        let tensors = formats.iter().copied().zip(inputs).collect();
        Ok(Step { input: Input { name: self.name, scale, clip, tensors }, expect })
    }
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
