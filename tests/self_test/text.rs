//! `src/self_test/cases.txt` as it follows from `steps.json`, `scaler.json` and a few steps of its own.

use std::fmt::Write as _;

use gradclip::reference::{self, TensorBits};
use gradclip::{ClipNorm, Format, LossScale, R24};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::common::{cases, scaler};

/// The steps that are left out, for the size of the library: random gradients whose text is longer than all the rest
/// together (fuzz 4, 8 and 11, one of each format, stay), and a thousand tensors, which take as long as all the rest.
pub const LEFT_OUT: [&str; 13] = [
    "bf16 ones cut into pairs",
    "fuzz 0 f32 centre 127 width 3",
    "fuzz 1 f32 centre 127 width 30",
    "fuzz 2 f32 centre 127 width 127",
    "fuzz 3 f32 centre 5 width 10",
    "fuzz 5 f32 centre 100 width 40",
    "fuzz 6 f16 centre 15 width 3",
    "fuzz 7 f16 centre 15 width 15",
    "fuzz 9 bf16 centre 127 width 3",
    "fuzz 10 bf16 centre 127 width 127",
    "fuzz 12 f32 centre 127 width 5",
    "fuzz 13 f16 centre 15 width 5",
    "fuzz 14 bf16 centre 127 width 5",
];

/// A step of this file: name, scale, limit and eps, and format and bits of each tensor.
type Own = (&'static str, f32, [f32; 2], &'static [(Format, &'static str)]);

/// What `steps.json` has only among its largest cases, or not at all. The answers are the reference's; `embedded.rs` has
/// those that need a rounding, worked out by hand.
const OWN: [Own; 8] = [
    (
        // The norm is 2^20, since nothing else reaches its last bit: a factor of 0.75.
        "ties in each format",
        1.0,
        [786_432.0, 0.0],
        &[
            (Format::F32, "49800000 3f800001 3f800003 00000002 00000006 0000000a"),
            (Format::F16, "3d56 3d5a 3d57 3d59 3c01 3c03 8002 0006 000a"),
            (Format::Bf16, "3fae 3fb2 bf81 3f83 0002 0006 000a"),
        ],
    ),
    (
        // 3 and 4 times 2^-129, to a norm of 2.5 times that.
        "subnormals clipped to subnormals",
        1.0,
        [3.673_42e-39, 0.0],
        &[(Format::F32, "00300000 80400000")],
    ),
    (
        // The square of a tie, 2^17 + 2^-7 and half of that last bit, with too little below the last bit that counts.
        "a sum of f16 is cut once",
        1.0,
        [f32::INFINITY, 0.0],
        &[(Format::F16, "7bff*4 6bf0 5f80 5900 5000*3 2000 0040")],
    ),
    ("f16 subnormal, nothing to do", 1.0, [1.0, EPS], &[(Format::F16, "0001 8000 0000")]),
    (
        "f16, nonfinite of each kind",
        8.0,
        [1.0, EPS],
        &[
            (Format::F16, "3c00 7bff fbff 0001 7c00"),
            (Format::F16, "3c00"),
            (Format::F16, "8000 fc00 7e00 7c01 ffff fc00 7c00"),
        ],
    ),
    (
        "bf16, nonfinite of each kind",
        8.0,
        [1.0, EPS],
        &[
            (Format::Bf16, "3f80 7f7f ff7f 0001 ff80"),
            (Format::Bf16, "3f80"),
            (Format::Bf16, "8000 7f80 7fc0 7f81 ffff ff80 7f80"),
        ],
    ),
    (
        "nonfinite far from the start",
        8.0,
        [1.0, EPS],
        &[
            (Format::F32, "3f800000*100 ffc00000 3f800000*30 ff800000"),
            (Format::F16, "3c00*201 7c00 3c00*97 7e00"),
            (Format::Bf16, "3f80*300 ff80 7f80"),
        ],
    ),
    (
        "unscaling overflows bf16",
        0.5,
        [f32::INFINITY, EPS],
        &[(Format::Bf16, "7f00"), (Format::Bf16, "3f80*3")],
    ),
];
const EPS: f32 = ClipNorm::DEFAULT_EPS;

const HEAD: &str = "\
# What Context::self_test runs: most steps of tests/data/steps.json, some that it has only at great length, and all
# of tests/data/scaler.json. Written by tests/self_test/text.rs, which says what is left out; change it there.
#
# step NAME
# given SCALE MAX_NORM EPS | given SCALE none
# found finite|inf|overflow NORM COEFFICIENT FACTOR
# COUNT FORMAT BITS... > BITS...        so many tensors, before and after
# COUNT FORMAT BITS... =                the same, unchanged
# COUNT FORMAT BITS... = NAN POS_INF NEG_INF FIRST        not all finite
#     BITS*N is N elements.
#
# scale NAME
# config INIT_SCALE GROWTH_FACTOR BACKOFF_FACTOR GROWTH_INTERVAL HYSTERESIS MIN_SCALE MAX_SCALE REFILL GROWTH_TRACKER
# update finite|inf|overflow SCALE GROWTH_TRACKER SKIPPED CONSECUTIVE_SKIPPED
";

/// Every step of the file, in order: name, input and answer, as `steps.json` writes them.
pub fn steps() -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(cases::BUILT_IN).unwrap();
    let kept = all.into_iter().filter(|case| !LEFT_OUT.contains(&case["name"].as_str().unwrap()));
    kept.chain(OWN.iter().map(own)).collect()
}

/// The whole file.
pub fn expected() -> String {
    let scales: Vec<Value> = serde_json::from_str(scaler::BUILT_IN).unwrap();
    let mut text = HEAD.to_string();
    text.extend(steps().iter().map(step));
    text.extend(scales.iter().map(scale));
    text
}

fn own(&(name, scale, [max_norm, eps], tensors): &Own) -> Value {
    let bytes = |&(format, text): &(Format, &str)| -> Vec<u8> {
        let runs = text.split(' ').map(|word| word.split_once('*').unwrap_or((word, "1")));
        let words = runs.flat_map(|(bits, count)| std::iter::repeat_n(bits, count.parse().unwrap()));
        let bits = words.map(|bits| u32::from_str_radix(bits, 16).unwrap());
        bits.flat_map(|b| b.to_le_bytes().into_iter().take(format.size() as usize)).collect()
    };
    let hex = |format: Format, bytes: &[u8]| -> String {
        let elements = bytes.chunks(format.size() as usize);
        let words = elements.map(|e| e.iter().rev().map(|b| format!("{b:02x}")).collect::<String>());
        words.collect::<Vec<_>>().join(" ")
    };
    let before: Vec<Vec<u8>> = tensors.iter().map(bytes).collect();
    let mut after = before.clone();
    let mut slices: Vec<TensorBits<'_>> =
        tensors.iter().zip(&mut after).map(|(&(format, _), bytes)| TensorBits::new(format, bytes)).collect();
    let clip = ClipNorm::new(max_norm).unwrap().with_eps(eps).unwrap();
    let outcome = reference::step(&mut slices, LossScale::new(scale).unwrap(), Some(clip));
    let texts = |all: &[Vec<u8>]| -> Vec<String> {
        tensors.iter().zip(all).map(|(&(format, _), bytes)| hex(format, bytes)).collect()
    };
    let r24 = |r: R24| json!([r.significand, r.exponent]);
    json!({
        "name": name,
        "scale": scale,
        "max_norm": if max_norm.is_finite() { json!(max_norm) } else { json!("inf") },
        "eps": eps,
        "tensors": tensors.iter().zip(texts(&before))
            .map(|((format, _), bits)| json!({ "format": format.name(), "bits": bits }))
            .collect::<Vec<_>>(),
        "expect": {
            "found_inf": outcome.found_inf,
            "overflow": outcome.overflow,
            "norm": r24(outcome.total_norm),
            "coefficient": r24(outcome.coefficient),
            "factor": r24(outcome.factor),
            "nonfinite": outcome.nonfinite.iter().map(|n| json!([n.nan, n.pos_inf, n.neg_inf, n.first]))
                .collect::<Vec<_>>(),
            "tensors": texts(&after),
        },
    })
}

fn step(case: &Value) -> String {
    let expect = &case["expect"];
    let mut text = format!("\nstep {}\n", case["name"].as_str().unwrap());
    let limit = match &case["max_norm"] {
        Value::Null => "none".to_string(),
        Value::String(inf) => format!("{inf} {:?}", f32_of(&case["eps"])),
        number => format!("{:?} {:?}", f32_of(number), f32_of(&case["eps"])),
    };
    let _ = writeln!(text, "given {:?} {limit}", f32_of(&case["scale"]));
    let r24 = |name: &str| format!("{}*2^{}", expect[name][0], expect[name][1]);
    let found = found(&expect["found_inf"], expect["overflow"] == true);
    let _ = writeln!(text, "found {found} {} {} {}", r24("norm"), r24("coefficient"), r24("factor"));
    let tensors = case["tensors"].as_array().unwrap();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (i, tensor) in tensors.iter().enumerate() {
        let line = line(tensor, &expect["tensors"][i], &expect["nonfinite"][i]);
        match lines.last_mut() {
            Some((count, last)) if *last == line => *count += 1,
            _ => lines.push((1, line)),
        }
    }
    for (count, line) in lines {
        let _ = writeln!(text, "{count} {line}");
    }
    text
}

fn line(tensor: &Value, after: &Value, nonfinite: &Value) -> String {
    let (before, after) = (elements(&tensor["bits"]), elements(after));
    let mut line = format!("{}{before}", tensor["format"].as_str().unwrap());
    if before != after {
        assert!(nonfinite[3].is_null(), "changed, though not finite");
        return line + " >" + &after;
    }
    line += " =";
    if !nonfinite[3].is_null() {
        for count in nonfinite.as_array().unwrap() {
            let _ = write!(line, " {count}");
        }
    }
    line
}

/// Each with a space before it.
fn elements(bits: &Value) -> String {
    let words: Vec<&str> = bits.as_str().unwrap().split_whitespace().collect();
    let runs = words.chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => format!(" {}", run[0]),
        count => format!(" {}*{count}", run[0]),
    });
    runs.collect()
}

fn scale(case: &Value) -> String {
    let c = &case["config"];
    let mut text = format!("\nscale {}\n", case["name"].as_str().unwrap());
    let _ = writeln!(
        text,
        "config {:?} {:?} {:?} {} {} {:?} {:?} {} {}",
        f32_of(&c["scale"]),
        c["growth_factor"].as_f64().unwrap(),
        c["backoff_factor"].as_f64().unwrap(),
        c["growth_interval"],
        c["hysteresis"],
        f32_of(&c["min_scale"]),
        f32_of(&c["max_scale"]),
        if c["refill_on_finite"] == true { "finite" } else { "growth" },
        c["growth_tracker"],
    );
    for update in case["updates"].as_array().unwrap() {
        let _ = writeln!(
            text,
            "update {} {:?} {} {} {}",
            found(&update["found_inf"], update["overflow"] == true),
            f32_of(&update["scale"]),
            update["growth_tracker"],
            update["skipped"],
            update["consecutive_skipped"]
        );
    }
    text
}

fn found(found_inf: &Value, overflow: bool) -> &'static str {
    match (overflow, found_inf == true) {
        (true, _) => "overflow",
        (false, true) => "inf",
        (false, false) => "finite",
    }
}

/// The f32 that the number stands for, as the conformance runner reads it.
fn f32_of(number: &Value) -> f32 {
    f32::deserialize(number).unwrap()
}
