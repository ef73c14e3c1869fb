//! How files of cases are read: whatever could go unnoticed is an error that names the case.

use std::path::Path;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;

/// The cases of a JSON list, each made ready by `ready`. Errors name the case by its place and its name.
pub fn parse<C: DeserializeOwned, R>(
    json: &str,
    ready: impl Fn(C) -> Result<R, String>,
) -> Result<Vec<R>, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let cases: Vec<C> = serde_path_to_error::deserialize(&mut deserializer).map_err(|e| misread(json, &e))?;
    deserializer.end().map_err(|e| e.to_string())?;
    if cases.is_empty() {
        return Err("no cases: an empty list proves nothing".into());
    }
    let made = |(i, case)| ready(case).map_err(|e| format!("{}: {e}", label(json, i)));
    cases.into_iter().enumerate().map(made).collect()
}

/// The text of a file, and what `parse` makes of it. Errors begin with the path.
pub fn read<R>(path: &Path, parse: impl Fn(&str) -> Result<R, String>) -> Result<R, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
    parse(&text).map_err(|e| at(&e))
}

/// What serde could not read, as `case 3 "name": tensors[0].bits: why`.
fn misread(json: &str, error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let why = error.inner();
    let path = error.path().to_string();
    match error.path().iter().next() {
        // Where the text ends or breaks, no name can be had either.
        Some(&Segment::Seq { index }) => {
            let inside = path.split_once(']').map_or("", |(_, rest)| rest).trim_start_matches('.');
            let field = if inside.is_empty() { String::new() } else { format!("{inside}: ") };
            format!("{}: {field}{why}", label(json, index))
        }
        _ => why.to_string(),
    }
}

fn label(json: &str, index: usize) -> String {
    let all: Vec<serde_json::Value> = serde_json::from_str(json).unwrap_or_default();
    match all.get(index).and_then(|case| case["name"].as_str()) {
        Some(name) => format!("case {index} \"{name}\""),
        None => format!("case {index}"),
    }
}

/// A field that may be left out, but may not be null unless `T` may.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A number that f32 holds. One that it would turn into infinity or 0 switches a limit off, or eps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Real(pub f32);

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wide = f64::deserialize(from)?;
        narrow(wide).map(Self).map_err(D::Error::custom)
    }
}

fn narrow(wide: f64) -> Result<f32, String> {
    let narrow = wide as f32;
    if narrow.is_infinite() || (narrow == 0.0) != (wide == 0.0) {
        return Err(format!("{wide:e} is outside the range of f32"));
    }
    Ok(narrow)
}

/// A number that f32 holds, or the text "inf", since JSON has no infinity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound(pub f32);

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "neither a number nor \"inf\"")]
        enum Either {
            Number(f64),
            Text(String),
        }
        match Either::deserialize(from)? {
            Either::Number(wide) => narrow(wide).map(Self).map_err(D::Error::custom),
            Either::Text(text) if text == "inf" => Ok(Self(f32::INFINITY)),
            Either::Text(text) => {
                Err(D::Error::custom(format!("\"{text}\" is neither a number nor \"inf\"")))
            }
        }
    }
}
