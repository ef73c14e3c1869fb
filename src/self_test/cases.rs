//! The built-in cases: `cases.txt`, whose head says how it is written.

use crate::{ClipNorm, Format, HysteresisRefill, LossScale, Nonfinite, R24, ScalerConfig, ScalerState};

const BUILT_IN: &str = include_str!("cases.txt");

/// All cases.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Cases {
    pub steps: Vec<StepCase>,
    pub scales: Vec<ScaleCase>,
}

/// A step and what it must return.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepCase {
    pub name: String,
    pub scale: LossScale,
    pub clip: Option<ClipNorm>,
    pub found_inf: bool,
    pub overflow: bool,
    pub norm: R24,
    pub coefficient: R24,
    pub factor: R24,
    pub tensors: Vec<TensorCase>,
}

/// One tensor of a step, before and after.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorCase {
    pub format: Format,
    pub before: Vec<u8>,
    pub after: Vec<u8>,
    pub nonfinite: Nonfinite,
}

/// A sequence of updates of the loss scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScaleCase {
    pub name: String,
    pub config: ScalerConfig,
    pub growth_tracker: u32,
    pub updates: Vec<Update>,
}

/// What the gradients of a step are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Finite,
    Nonfinite,
    Overflow,
}

/// What an update starts from, and where it must end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Update {
    pub found: Found,
    pub scale: f32,
    pub growth_tracker: u32,
    pub skipped: u32,
    pub consecutive_skipped: u32,
}

impl ScaleCase {
    pub fn start(&self) -> ScalerState {
        ScalerState { growth_tracker: self.growth_tracker, ..ScalerState::new(&self.config) }
    }
}

/// The cases of this release.
///
/// # Errors
/// The first line that says nothing, with its number.
pub(super) fn built_in() -> Result<Cases, String> {
    parse(BUILT_IN)
}

fn parse(text: &str) -> Result<Cases, String> {
    let mut cases = Cases::default();
    for (number, line) in (1..).zip(text.lines()) {
        cases.read(line).ok_or_else(|| format!("line {number}, \"{line}\""))?;
    }
    Ok(cases)
}

impl Cases {
    fn read(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split(' ');
        match word {
            "" | "#" => {}
            "step" => self.steps.push(StepCase {
                name: rest.into(),
                scale: LossScale::ONE,
                clip: None,
                found_inf: false,
                overflow: false,
                norm: R24::ZERO,
                coefficient: R24::ZERO,
                factor: R24::ZERO,
                tensors: Vec::new(),
            }),
            "given" => {
                let step = self.steps.last_mut()?;
                step.scale = LossScale::new(number(words.next())?).ok()?;
                step.clip = match (words.next()?, words.next()) {
                    ("none", None) => None,
                    (max_norm, eps) => {
                        let clip = ClipNorm::new(number(Some(max_norm))?).ok()?;
                        Some(clip.with_eps(number(eps)?).ok()?)
                    }
                };
            }
            "found" => {
                let step = self.steps.last_mut()?;
                let found = found(words.next()?)?;
                (step.found_inf, step.overflow) = (found != Found::Finite, found == Found::Overflow);
                step.norm = r24(words.next()?)?;
                step.coefficient = r24(words.next()?)?;
                step.factor = r24(words.next()?)?;
            }
            "scale" => self.scales.push(ScaleCase {
                name: rest.into(),
                config: ScalerConfig::default(),
                growth_tracker: 0,
                updates: Vec::new(),
            }),
            "config" => {
                let case = self.scales.last_mut()?;
                case.config = ScalerConfig {
                    init_scale: number(words.next())?,
                    growth_factor: number(words.next())?,
                    backoff_factor: number(words.next())?,
                    growth_interval: number(words.next())?,
                    hysteresis: number(words.next())?,
                    min_scale: number(words.next())?,
                    max_scale: number(words.next())?,
                    refill: match words.next()? {
                        "growth" => HysteresisRefill::OnGrowth,
                        "finite" => HysteresisRefill::OnFiniteStep,
                        _ => return None,
                    },
                    ..ScalerConfig::default()
                };
                case.growth_tracker = number(words.next())?;
            }
            "update" => self.scales.last_mut()?.updates.push(Update {
                found: found(words.next()?)?,
                scale: number(words.next())?,
                growth_tracker: number(words.next())?,
                skipped: number(words.next())?,
                consecutive_skipped: number(words.next())?,
            }),
            count => {
                let tensors = &mut self.steps.last_mut()?.tensors;
                let tensor = tensor(rest)?;
                tensors.extend(std::iter::repeat_n(tensor, number(Some(count))?));
            }
        }
        Some(())
    }
}

fn number<T: std::str::FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

fn found(word: &str) -> Option<Found> {
    Some(match word {
        "finite" => Found::Finite,
        "inf" => Found::Nonfinite,
        "overflow" => Found::Overflow,
        _ => return None,
    })
}

/// `10485760*2^-21`
fn r24(word: &str) -> Option<R24> {
    let (significand, exponent) = word.split_once("*2^")?;
    Some(R24 { significand: significand.parse().ok()?, exponent: exponent.parse().ok()? })
}

/// `f32 41c00000 > 3f19999a`, or `f32 7fc00000 = 1 0 0 0`
fn tensor(text: &str) -> Option<TensorCase> {
    let (name, text) = text.split_once(' ')?;
    let format = Format::ALL.into_iter().find(|f| f.name() == name)?;
    let mut nonfinite = Nonfinite::default();
    let (before, after) = match text.split_once('>') {
        Some((before, after)) => (elements(format, before)?, elements(format, after)?),
        None => {
            let (before, counts) = text.split_once('=')?;
            let counts: Vec<u64> =
                counts.split_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?;
            if let [nan, pos_inf, neg_inf, first] = counts[..] {
                nonfinite = Nonfinite { nan, pos_inf, neg_inf, first: Some(first) };
            } else if !counts.is_empty() {
                return None;
            }
            let before = elements(format, before)?;
            (before.clone(), before)
        }
    };
    (before.len() == after.len()).then_some(TensorCase { format, before, after, nonfinite })
}

/// `3f800000*64 40000000`
fn elements(format: Format, text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        let (bits, count) = word.split_once('*').unwrap_or((word, "1"));
        let element = u32::from_str_radix(bits, 16).ok()?.to_le_bytes();
        for _ in 0..count.parse::<u32>().ok()? {
            bytes.extend_from_slice(element.get(..format.size() as usize)?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_cases_are_well_formed() {
        let cases = built_in().unwrap();
        assert!(cases.steps.len() > 60, "{} steps", cases.steps.len());
        assert!(cases.scales.len() > 10, "{} sequences", cases.scales.len());
        let scaler_default = ScaleCase {
            name: String::new(),
            config: ScalerConfig::default(),
            growth_tracker: 0,
            updates: vec![],
        };
        for case in &cases.scales {
            assert!(case.config != scaler_default.config && !case.updates.is_empty(), "{}", case.name);
            assert_eq!(case.config.check(), Ok(()), "{}", case.name);
        }
    }

    #[test]
    fn a_step_is_read_whole() {
        let text = "step two words\ngiven 8.0 1.0 1e-6\nfound inf 0*2^0 0*2^0 0*2^0\n2 f16 7e00*2 3c00 = 2 0 0 0\n\
                    1 f32 =";
        let odd = TensorCase {
            format: Format::F16,
            before: vec![0, 0x7e, 0, 0x7e, 0, 0x3c],
            after: vec![0, 0x7e, 0, 0x7e, 0, 0x3c],
            nonfinite: Nonfinite { nan: 2, first: Some(0), ..Nonfinite::default() },
        };
        let empty = TensorCase {
            format: Format::F32,
            before: vec![],
            after: vec![],
            nonfinite: Nonfinite::default(),
        };
        let want = StepCase {
            name: "two words".into(),
            scale: LossScale::new(8.0).unwrap(),
            clip: Some(ClipNorm::new(1.0).unwrap().with_eps(1e-6).unwrap()),
            found_inf: true,
            overflow: false,
            norm: R24::ZERO,
            coefficient: R24::ZERO,
            factor: R24::ZERO,
            tensors: vec![odd.clone(), odd, empty],
        };
        assert_eq!(parse(text).unwrap().steps, [want]);
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        let wrong = [
            "given 1.0 none",
            "step a\nnonsense",
            "step a\ngiven 0.0 none",
            "step a\ngiven 1.0 1.0",
            "step a\nfound inf 0*2^0 0*2^0",
            "step a\nfound none 0*2^0 0*2^0 0*2^0",
            "step a\n1 f64 0 =",
            "step a\n1 f32 0 > 0 0",
            "step a\n1 f32 xyz =",
            "step a\n1 f32 0 = 1",
            "step a\n-1 f32 0 =",
            "scale a\nconfig 1.0",
            "scale a\nupdate inf 1.0 0",
        ];
        for text in wrong {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line {}, ", text.lines().count())), "{text}: {error}");
        }
    }
}
