//! The first difference between what a case must return and what the GPU returned.

use std::fmt;

use super::cases::{ScaleCase, StepCase};
use crate::report::Verdict;
use crate::{Nonfinite, R24, ScalerState};

/// The first thing in which a case differs from its exact answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Difference {
    /// What differs: a field of the verdict, the counts of a tensor, an element (as the bits that are stored), a byte
    /// beside the tensors, or a field of the scaler's state after an update.
    pub what: String,
    /// What it has to be.
    pub expected: String,
    /// What the GPU returned.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, expected {}", self.what, self.got, self.expected)
    }
}

impl Difference {
    pub(super) fn new(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self { what: what.into(), expected: expected.into(), got: got.into() }
    }

    /// `None` if both are the same text.
    fn between(what: &str, expected: &impl ToString, got: &impl ToString) -> Option<Self> {
        let (expected, got) = (expected.to_string(), got.to_string());
        (expected != got).then(|| Self::new(what, expected, got))
    }
}

/// What came back of a step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepAnswer {
    pub verdict: Verdict,
    pub nonfinite: Vec<Nonfinite>,
    /// The whole buffer, the bytes beside the tensors too.
    pub arena: Vec<u8>,
}

/// `expected`: the buffer as it must be; `places`: where in it each tensor starts.
pub(super) fn step(
    case: &StepCase,
    expected: &[u8],
    places: &[usize],
    got: &StepAnswer,
) -> Option<Difference> {
    verdicts(&verdict_of(case), &got.verdict)
        .or_else(|| counts(case, &got.nonfinite))
        .or_else(|| elements(case, places, &got.arena))
        .or_else(|| beside(expected, &got.arena))
}

/// The verdict that a first step of a set must leave.
pub(super) fn verdict_of(case: &StepCase) -> Verdict {
    let taken = !case.found_inf;
    // In place: nothing is left to do.
    let left = if taken { R24::ONE } else { R24::ZERO };
    Verdict {
        skip: u32::from(!taken),
        found_inf: u32::from(case.found_inf),
        overflow: u32::from(case.overflow),
        factor: if taken { 1.0 } else { 0.0 },
        factor_significand: left.significand,
        factor_exponent: left.exponent,
        step_factor_significand: case.factor.significand,
        step_factor_exponent: case.factor.exponent,
        norm_significand: case.norm.significand,
        norm_exponent: case.norm.exponent,
        coefficient_significand: case.coefficient.significand,
        coefficient_exponent: case.coefficient.exponent,
        scale: case.scale.get(),
        run: 1,
        taken: u32::from(taken),
        ..bytemuck::Zeroable::zeroed()
    }
}

/// `run` first: where nothing ran, no other field means anything.
fn verdicts(want: &Verdict, got: &Verdict) -> Option<Difference> {
    type Field = (&'static str, fn(&Verdict) -> String);
    let fields: [Field; 17] = [
        ("steps that ran", |v| v.run.to_string()),
        ("found_inf", |v| flag(v.found_inf)),
        ("overflow", |v| flag(v.overflow)),
        ("above", |v| flag(v.above)),
        ("bad_scalar", |v| flag(v.bad_scalar)),
        ("other", |v| flag(v.other)),
        ("halted", |v| flag(v.halted)),
        ("skip", |v| flag(v.skip)),
        ("norm", |v| exact(v.norm_significand, v.norm_exponent)),
        ("coefficient", |v| exact(v.coefficient_significand, v.coefficient_exponent)),
        ("factor", |v| exact(v.step_factor_significand, v.step_factor_exponent)),
        ("factor left", |v| exact(v.factor_significand, v.factor_exponent)),
        ("verdict.apply", |v| v.apply.to_string()),
        ("verdict.factor", |v| format!("{:e} (bits {:08x})", v.factor, v.factor.to_bits())),
        ("verdict.scale", |v| format!("{:e} (bits {:08x})", v.scale, v.scale.to_bits())),
        ("verdict.consumed", |v| v.consumed.to_string()),
        ("verdict.taken", |v| v.taken.to_string()),
    ];
    fields.into_iter().find_map(|(what, text)| Difference::between(what, &text(want), &text(got)))
}

fn flag(word: u32) -> String {
    match word {
        0 => "false".into(),
        1 => "true".into(),
        other => format!("{other}, neither 0 nor 1"),
    }
}

fn exact(significand: u32, exponent: i32) -> String {
    let value = R24 { significand, exponent };
    format!("{:e} ({significand} * 2^{exponent})", value.to_f64())
}

fn counts(case: &StepCase, got: &[Nonfinite]) -> Option<Difference> {
    let tensors = case.tensors.iter().zip(got).enumerate();
    tensors
        .filter(|(_, (tensor, got))| tensor.nonfinite != **got)
        .map(|(i, (tensor, got))| {
            Difference::new(
                format!("nonfinite elements of tensor {i}"),
                tensor.nonfinite.to_string(),
                got.to_string(),
            )
        })
        .next()
}

fn elements(case: &StepCase, places: &[usize], arena: &[u8]) -> Option<Difference> {
    for (i, (tensor, &place)) in case.tensors.iter().zip(places).enumerate() {
        let size = tensor.format.size() as usize;
        let got = arena[place..].chunks_exact(size);
        let mut elements = tensor.after.chunks_exact(size).zip(got).enumerate();
        if let Some((index, (want, got))) = elements.find(|(_, (want, got))| want != got) {
            let before = hex(&tensor.before[index * size..][..size]);
            let what = format!("tensor {i} ({}), element {index}, bits {before} before", tensor.format);
            return Some(Difference::new(what, hex(want), hex(got)));
        }
    }
    None
}

/// The tensors are as they must be, so that any other byte lies beside them.
fn beside(expected: &[u8], arena: &[u8]) -> Option<Difference> {
    let at = expected.iter().zip(arena).position(|(want, got)| want != got)?;
    let what = format!("byte {at}, beside the tensors");
    Some(Difference::new(what, hex(&expected[at..=at]), hex(&arena[at..=at])))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
}

/// The state after each update of a sequence.
pub(super) fn scale(case: &ScaleCase, got: &[ScalerState]) -> Option<Difference> {
    (1u32..).zip(&case.updates).zip(got).find_map(|((number, want), got)| {
        let scale = |scale: f32| format!("{scale:e} (bits {:08x})", scale.to_bits());
        let fields = [
            ("updates", number.to_string(), got.updates.to_string()),
            ("scale", scale(want.scale), scale(got.scale)),
            ("growth_tracker", want.growth_tracker.to_string(), got.growth_tracker.to_string()),
            ("skipped", want.skipped.to_string(), got.skipped.to_string()),
            (
                "consecutive_skipped",
                want.consecutive_skipped.to_string(),
                got.consecutive_skipped.to_string(),
            ),
        ];
        fields.iter().find_map(|(what, want, got)| {
            Difference::between(&format!("{what} after update {number}"), want, got)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::cases::{Cases, built_in};
    use crate::self_test::run::{Way, image, places};

    /// A right answer to change.
    struct Right {
        case: StepCase,
        places: Vec<usize>,
        expected: Vec<u8>,
        answer: StepAnswer,
    }

    impl Right {
        fn of(name: &str) -> Self {
            let Cases { steps, .. } = built_in().unwrap();
            let case = steps.into_iter().find(|case| case.name == name).unwrap();
            let places = places(&case.tensors, Way::Words);
            let expected = image(&case.tensors, &places, |tensor| &tensor.after);
            let answer = StepAnswer {
                verdict: verdict_of(&case),
                nonfinite: case.tensors.iter().map(|tensor| tensor.nonfinite).collect(),
                arena: expected.clone(),
            };
            Self { case, places, expected, answer }
        }

        fn differs(&self, change: impl FnOnce(&mut StepAnswer)) -> String {
            assert_eq!(step(&self.case, &self.expected, &self.places, &self.answer), None);
            let mut wrong = self.answer.clone();
            change(&mut wrong);
            step(&self.case, &self.expected, &self.places, &wrong).expect("a difference").to_string()
        }
    }

    #[test]
    fn each_field_of_the_verdict() {
        let right = Right::of("3-4-5 split over two tensors");
        let differs = |change: fn(&mut Verdict)| right.differs(|answer| change(&mut answer.verdict));
        assert_eq!(differs(|v| v.run = 0), "steps that ran: 0, expected 1");
        assert_eq!(differs(|v| *v = Verdict::not_run()), "steps that ran: 0, expected 1");
        assert_eq!(differs(|v| v.found_inf = 1), "found_inf: true, expected false");
        assert_eq!(differs(|v| v.overflow = 7), "overflow: 7, neither 0 nor 1, expected false");
        assert_eq!(differs(|v| v.above = 1), "above: true, expected false");
        assert_eq!(differs(|v| v.skip = 1), "skip: true, expected false");
        assert_eq!(
            differs(|v| v.norm_significand += 1),
            "norm: 5.000000476837158e0 (10485761 * 2^-21), expected 5e0 (10485760 * 2^-21)"
        );
        assert_eq!(
            differs(|v| v.norm_exponent = i32::MIN),
            "norm: 0e0 (10485760 * 2^-2147483648), expected 5e0 (10485760 * 2^-21)"
        );
        assert_eq!(
            differs(|v| v.coefficient_exponent += 1),
            "coefficient: 3.999999165534973e-1 (13421770 * 2^-25), expected 1.9999995827674866e-1 (13421770 * 2^-26)"
        );
        assert_eq!(
            differs(|v| v.step_factor_significand -= 1),
            "factor: 1.9999994337558746e-1 (13421769 * 2^-26), expected 1.9999995827674866e-1 (13421770 * 2^-26)"
        );
        assert_eq!(differs(|v| v.apply = 2), "verdict.apply: 2, expected 0");
        assert_eq!(
            differs(|v| v.factor = 0.2),
            "verdict.factor: 2e-1 (bits 3e4ccccd), expected 1e0 (bits 3f800000)"
        );
        assert_eq!(
            differs(|v| v.scale = -1.0),
            "verdict.scale: -1e0 (bits bf800000), expected 1e0 (bits 3f800000)"
        );
        assert_eq!(differs(|v| v.consumed = 1), "verdict.consumed: 1, expected 0");
        assert_eq!(differs(|v| v.taken = 0), "verdict.taken: 0, expected 1");
    }

    #[test]
    fn nothing_is_left_to_do_in_place() {
        let verdict = |name| verdict_of(&Right::of(name).case);
        let left = |v: Verdict| (v.skip, v.apply, v.factor);
        assert_eq!(left(verdict("scale 2^127, inverse is subnormal")), (0, 0, 1.0));
        assert_eq!(left(verdict("zero limit")), (0, 0, 1.0));
        assert_eq!(left(verdict("at the limit stays bit for bit")), (0, 0, 1.0));
        assert_eq!(left(verdict("2, nan")), (1, 0, 0.0));
    }

    #[test]
    fn counts_elements_and_gaps() {
        let right = Right::of("inf in one tensor leaves all bytes");
        assert_eq!(
            right.differs(|a| a.nonfinite[0].first = Some(0)),
            "nonfinite elements of tensor 0: 0 NaN, 1 +inf, 0 -inf, first at 0, expected 0 NaN, 1 +inf, 0 -inf, first at 1"
        );
        assert_eq!(
            right.differs(|a| a.nonfinite[1].nan = 3),
            "nonfinite elements of tensor 1: 3 NaN, 0 +inf, 0 -inf, expected 0 NaN, 0 +inf, 0 -inf"
        );

        let right = Right::of("mixed formats, three kinds");
        let (f32s, f16s) = (right.places[0], right.places[1]);
        let before = |tensor: usize, bytes| hex(&right.case.tensors[tensor].before[bytes]);
        let after = |tensor: usize, bytes| hex(&right.case.tensors[tensor].after[bytes]);
        let (was, want) = (before(0, 4..8), after(0, 4..8));
        assert_eq!(
            right.differs(|a| a.arena[f32s + 4..][..4].fill(0xab)),
            format!("tensor 0 (f32), element 1, bits {was} before: abababab, expected {want}")
        );
        let (was, want) = (before(1, 2..4), after(1, 2..4));
        assert_eq!(
            right.differs(|a| a.arena[f16s + 2..][..2].fill(0xab)),
            format!("tensor 1 (f16), element 1, bits {was} before: abab, expected {want}")
        );
        let last = right.expected.len() - 1;
        for at in [0, f32s - 1, f32s + 8, f16s - 1, last] {
            assert_eq!(
                right.differs(|a| a.arena[at] = 0),
                format!("byte {at}, beside the tensors: 00, expected ff")
            );
        }
    }

    #[test]
    fn each_field_of_the_scale() {
        let Cases { scales, .. } = built_in().unwrap();
        let case = &scales[0];
        let states: Vec<ScalerState> = (1..)
            .zip(&case.updates)
            .map(|(updates, update)| ScalerState {
                updates,
                scale: update.scale,
                growth_tracker: update.growth_tracker,
                skipped: update.skipped,
                consecutive_skipped: update.consecutive_skipped,
                ..case.start()
            })
            .collect();
        assert_eq!(scale(case, &states), None);
        let differs = |change: fn(&mut ScalerState)| {
            let mut wrong = states.clone();
            change(&mut wrong[1]);
            scale(case, &wrong).expect("a difference").to_string()
        };
        assert_eq!(differs(|s| s.updates = 1), "updates after update 2: 1, expected 2");
        assert_eq!(
            differs(|s| s.scale = 4.0),
            "scale after update 2: 4e0 (bits 40800000), expected 8e0 (bits 41000000)"
        );
        assert_eq!(differs(|s| s.growth_tracker = 9), "growth_tracker after update 2: 9, expected 0");
        assert_eq!(differs(|s| s.skipped = 1), "skipped after update 2: 1, expected 0");
        assert_eq!(
            differs(|s| s.consecutive_skipped = 1),
            "consecutive_skipped after update 2: 1, expected 0"
        );
    }
}
