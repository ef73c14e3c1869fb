//! `steps.json` and `clips.json`: inputs of a step with exact answers.

use std::path::Path;

use gradclip::{ClipNorm, ClipValue, Format, LossScale, NormType, R24, TensorClip};
use serde::Deserialize;

use super::case_file::{self, Bound, Real, given};
use super::limit::Limit;

/// The cases that the repository ships: the L2 norm of all tensors.
pub const BUILT_IN: &str = include_str!("../../tests/data/steps.json");
/// And the other norms and limits.
pub const CLIPS: &str = include_str!("../../tests/data/clips.json");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default, rename = "source")]
    _source: Option<String>,
    scale: Real,
    /// null: no limit. This one, with eps, or `clip_value` has to be there.
    #[serde(default, deserialize_with = "given")]
    max_norm: Option<Option<Bound>>,
    #[serde(default, deserialize_with = "given")]
    eps: Option<Real>,
    /// L2 where it is not told.
    #[serde(default, deserialize_with = "given")]
    norm_type: Option<String>,
    #[serde(default)]
    each_tensor: bool,
    #[serde(default, deserialize_with = "given")]
    clip_value: Option<Bound>,
    tensors: Vec<Bits>,
    expect: Expected,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bits {
    format: String,
    bits: String,
}

/// Significand and exponent.
type Exact = (u32, i32);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    found_inf: bool,
    overflow: bool,
    norm: Exact,
    /// For people.
    #[serde(default, rename = "norm_f64")]
    _norm_f64: Option<f64>,
    coefficient: Exact,
    factor: Exact,
    nonfinite: Vec<(u64, u64, u64, Option<u64>)>,
    tensors: Vec<String>,
    /// Norm and coefficient of each tensor that was limited by itself.
    #[serde(default, deserialize_with = "given")]
    each: Option<Vec<(Option<Exact>, Exact)>>,
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
    case_file::parse(json, Case::ready)
}

/// Reads cases from a file.
pub fn read(path: &Path) -> Result<Vec<Step>, String> {
    case_file::read(path, parse)
}

impl Case {
    fn ready(self) -> Result<Step, String> {
        let limit = self.limit()?;
        let scale = LossScale::new(self.scale.0).map_err(|e| format!("scale: {e}"))?;
        let tensors = numbered("tensors", self.tensors, Bits::ready)?;
        let expect = self.expect.ready(&tensors, self.each_tensor)?;
        let clip = match limit {
            Limit::Norm(clip) => clip,
            Limit::EachTensor(_) | Limit::Value(_) => None,
        };
        Ok(Step { input: Input { name: self.name, scale, clip, tensors }, limit, expect })
    }

    fn limit(&self) -> Result<Limit, String> {
        let Some(max_norm) = self.max_norm else {
            let value = self.clip_value.ok_or("missing field `max_norm` or `clip_value`")?;
            let none = "is of a limit by norm, and `clip_value` is none";
            for (field, present) in [
                ("eps", self.eps.is_some()),
                ("norm_type", self.norm_type.is_some()),
                ("each_tensor", self.each_tensor),
            ] {
                if present {
                    return Err(format!("{field}: {none}"));
                }
            }
            return ClipValue::new(value.0).map(Limit::Value).map_err(|e| format!("clip_value: {e}"));
        };
        if self.clip_value.is_some() {
            return Err("clip_value: `max_norm` is there too, and a step has one limit".into());
        }
        let eps = self.eps.ok_or("missing field `eps`, which `max_norm` needs")?;
        let norm_type = norm_type(self.norm_type.as_deref())?;
        let clip = match max_norm {
            None => None,
            Some(max_norm) => {
                let clip = ClipNorm::new(max_norm.0).map_err(|e| format!("max_norm: {e}"))?;
                let clip = clip.with_eps(eps.0).map_err(|e| format!("eps: {e}"))?;
                Some(clip.with_norm_type(norm_type))
            }
        };
        match (self.each_tensor, clip) {
            (false, clip) => Ok(Limit::Norm(clip)),
            (true, Some(clip)) => Ok(Limit::EachTensor(clip)),
            (true, None) => {
                Err("each_tensor: `max_norm` is null, so there is no limit of each tensor".into())
            }
        }
    }
}

impl Bits {
    fn ready(self) -> Result<(Format, Vec<u8>), String> {
        let format = format(&self.format).map_err(|e| format!("format: {e}"))?;
        Ok((format, words(format, &self.bits).map_err(|e| format!("bits: {e}"))?))
    }
}

impl Expected {
    fn ready(self, before: &[(Format, Vec<u8>)], each_tensor: bool) -> Result<Answer, String> {
        let one_each = |field: &str, entries: usize| match entries == before.len() {
            true => Ok(()),
            false => Err(format!("expect.{field}: {entries} entries for {} tensors", before.len())),
        };
        one_each("nonfinite", self.nonfinite.len())?;
        one_each("tensors", self.tensors.len())?;
        let each = match (each_tensor, self.each) {
            (false, None) => Vec::new(),
            (true, Some(each)) => each,
            (true, None) => return Err("expect: missing field `each`, which `each_tensor` needs".into()),
            (false, Some(_)) => return Err("expect.each: `each_tensor` is not true".into()),
        };
        if each_tensor {
            one_each("each", each.len())?;
        }
        let f64_of = |field: &str, exact| match r24(exact) {
            Ok(number) => Ok(number.to_f64()),
            Err(error) => Err(format!("expect.{field}: {error}")),
        };
        let nonfinite = |(nan, pos_inf, neg_inf, first)| gradclip::Nonfinite { nan, pos_inf, neg_inf, first };
        let after = |(text, (format, before)): (String, &(Format, Vec<u8>))| {
            let after = words(*format, &text)?;
            if after.len() != before.len() {
                let count = |bytes: &[u8]| bytes.len() as u64 / format.size();
                return Err(format!("{} elements, but {} before", count(&after), count(before)));
            }
            Ok(after)
        };
        let one = |(norm, coefficient): (Option<_>, _)| {
            let norm = norm.map(r24).transpose().map_err(|e| format!("norm: {e}"))?;
            let coefficient = r24(coefficient).map_err(|e| format!("coefficient: {e}"))?;
            Ok(TensorClip { norm, coefficient })
        };
        Ok(Answer {
            found_inf: self.found_inf,
            overflow: self.overflow,
            norm: f64_of("norm", self.norm)?,
            coefficient: f64_of("coefficient", self.coefficient)?,
            factor: f64_of("factor", self.factor)?,
            nonfinite: self.nonfinite.into_iter().map(nonfinite).collect(),
            tensors: numbered("expect.tensors", self.tensors.into_iter().zip(before), after)?,
            each: numbered("expect.each", each, one)?,
        })
    }
}

/// Each item made ready; an error says which.
fn numbered<I, R>(
    field: &str,
    items: impl IntoIterator<Item = I>,
    ready: impl Fn(I) -> Result<R, String>,
) -> Result<Vec<R>, String> {
    let made = |(i, item)| ready(item).map_err(|e| format!("{field}[{i}]: {e}"));
    items.into_iter().enumerate().map(made).collect()
}

/// One spelling for each number, or a wrong one could be equal as f64.
fn r24((significand, exponent): Exact) -> Result<R24, String> {
    let number = R24 { significand, exponent };
    if significand == 0 && exponent == 0 {
        return Ok(number);
    }
    if significand >> 23 != 1 {
        return Err(format!("[{significand}, {exponent}] is neither [0, 0] nor of a significand of 24 bits"));
    }
    match number.to_f64().is_normal() {
        true => Ok(number),
        false => Err(format!("[{significand}, {exponent}] is outside the range of f64")),
    }
}

fn norm_type(name: Option<&str>) -> Result<NormType, String> {
    let Some(name) = name else { return Ok(NormType::L2) };
    let all = [NormType::L1, NormType::L2, NormType::Linf];
    let found = all.into_iter().find(|n| n.to_string() == name);
    found.ok_or_else(|| format!("norm_type: unknown norm \"{name}\""))
}

fn format(name: &str) -> Result<Format, String> {
    Format::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| format!("unknown format \"{name}\""))
}

fn words(format: Format, text: &str) -> Result<Vec<u8>, String> {
    let size = format.size() as usize;
    let mut bytes = Vec::new();
    for (i, word) in text.split_whitespace().enumerate() {
        // A sign would pass as a number.
        let hex = word.len() == 2 * size && word.bytes().all(|b| b.is_ascii_hexdigit());
        let bits = hex.then(|| u32::from_str_radix(word, 16).ok()).flatten();
        let bits = bits.ok_or_else(|| {
            format!("element {i} is \"{word}\", not the {} hex digits of {format}", 2 * size)
        })?;
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    Ok(bytes)
}
