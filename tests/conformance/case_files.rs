//! A case file with anything wrong in it is refused, and the error names the case and the field.

use std::process::Command;

use serde_json::{Value, json};

use super::common::{cases, example, scaler};

/// The case that is made wrong, after one that is right.
const NAME: &str = "the one";

fn step() -> Value {
    json!({
        "name": NAME,
        "source": "test",
        "scale": 2.0,
        "max_norm": 1.0,
        "eps": 0.0,
        "norm_type": "L1",
        "each_tensor": true,
        "tensors": [
            { "format": "f32", "bits": "40000000 40400000" },
            { "format": "f16", "bits": "3c00" },
            { "format": "bf16", "bits": "3f80 3f80" },
        ],
        "expect": {
            "found_inf": false,
            "overflow": false,
            "norm": [0, 0],
            "norm_f64": 0.0,
            "coefficient": [8388608, -23],
            "factor": [16777215, -24],
            "nonfinite": [[0, 0, 0, null], [0, 0, 0, null], [0, 0, 0, null]],
            "tensors": ["3f800000 3fc00000", "3800", "3f00 3f00"],
            "each": [[[8388608, -23], [8388608, -23]], [null, [0, 0]], [[0, 0], [8388608, -23]]],
        },
    })
}

fn value_step() -> Value {
    let mut case = step();
    let fields = case.as_object_mut().unwrap();
    for field in ["max_norm", "eps", "norm_type", "each_tensor"] {
        fields.remove(field);
    }
    fields.insert("clip_value".into(), json!(1.0));
    case["expect"].as_object_mut().unwrap().remove("each");
    case
}

fn sequence() -> Value {
    json!({
        "name": NAME,
        "source": "test",
        "config": {
            "scale": 4.0,
            "growth_factor": 2.0,
            "backoff_factor": 0.5,
            "growth_interval": 2,
            "hysteresis": 1,
            "min_scale": 1.0,
            "max_scale": 65536.0,
            "refill_on_finite": false,
            "growth_tracker": 0,
        },
        "updates": [
            { "found_inf": false, "overflow": false, "scale": 4.0, "growth_tracker": 1, "skipped": 0,
              "consecutive_skipped": 0 },
        ],
    })
}

type Parse = fn(&str) -> Result<usize, String>;

/// What reads each kind of case, and a right one of it.
fn kinds() -> [(Value, Parse); 3] {
    let steps: Parse = |json| cases::parse(json).map(|cases| cases.len());
    let sequences: Parse = |json| scaler::parse(json).map(|cases| cases.len());
    [(step(), steps), (value_step(), steps), (sequence(), sequences)]
}

/// The error of a file with a right case before the wrong one. It names the wrong one.
fn refused(parse: Parse, right: &Value, wrong: &Value) -> String {
    let mut right = right.clone();
    right["name"] = json!("another");
    let error = parse(&json!([right, wrong]).to_string()).expect_err(&wrong.to_string());
    assert!(!error.contains("another") && !error.contains('\n'), "{error}");
    match wrong["name"].as_str() {
        Some(name) => assert!(error.starts_with(&format!("case 1 \"{name}\": ")), "{error}"),
        None => assert!(error.starts_with("case 1: "), "{error}"),
    }
    error
}

/// The error after one change, by JSON pointer.
fn refused_with(of: &(Value, Parse), pointer: &str, value: Value) -> String {
    let mut wrong = of.0.clone();
    *wrong.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    refused(of.1, &of.0, &wrong)
}

/// The pointers of all objects in a value.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.push(at.into());
            fields.iter().for_each(|(name, value)| objects(value, &format!("{at}/{name}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| objects(value, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

/// As errors write it: `expect.tensors[1]`.
fn path(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        match part.parse::<usize>() {
            Ok(index) => path += &format!("[{index}]"),
            Err(_) if path.is_empty() => path += part,
            Err(_) => path += &format!(".{part}"),
        }
    }
    path
}

#[test]
fn right_ones_are_read() {
    for (right, parse) in kinds() {
        assert_eq!(parse(&json!([right]).to_string()), Ok(1));
    }
    let mut unlimited = step();
    unlimited["max_norm"] = Value::Null;
    unlimited["each_tensor"] = json!(false);
    unlimited["expect"].as_object_mut().unwrap().remove("each");
    for max_norm in [Value::Null, json!("inf"), json!(0)] {
        unlimited["max_norm"] = max_norm;
        assert_eq!(cases::parse(&json!([unlimited]).to_string()).map(|cases| cases.len()), Ok(1));
    }
}

#[test]
fn every_field_that_is_missing_misspelt_or_null_is_named() {
    // Words for people, and what stands for a default.
    let optional = ["source", "norm_f64", "norm_type", "each_tensor"];
    for kind in kinds() {
        let (right, parse) = &kind;
        let mut all = Vec::new();
        objects(right, "", &mut all);
        for pointer in all {
            let within = path(&pointer);
            for (field, value) in right.pointer(&pointer).unwrap().as_object().unwrap() {
                let change = |edit: &dyn Fn(&mut serde_json::Map<String, Value>)| {
                    let mut wrong = right.clone();
                    edit(wrong.pointer_mut(&pointer).unwrap().as_object_mut().unwrap());
                    wrong
                };
                let misspelt = format!("{field}s");
                let with = change(&|fields| {
                    fields.remove(field);
                    fields.insert(misspelt.clone(), value.clone());
                });
                let error = refused(*parse, right, &with);
                assert!(error.contains(&within) && error.contains(&misspelt), "{error}");
                if optional.contains(&field.as_str()) {
                    continue;
                }
                let error = refused(*parse, right, &change(&|fields| drop(fields.remove(field))));
                assert!(error.contains(&within) && error.contains(&format!("`{field}`")), "{error}");
                if field != "max_norm" {
                    let error = refused_with(&kind, &format!("{pointer}/{field}"), Value::Null);
                    assert!(error.contains(field), "{error}");
                }
            }
        }
    }
}

#[test]
fn values_out_of_their_domain_are_named() {
    let [step, value, sequence] = kinds();
    for (pointer, values, what) in [
        ("/scale", vec![json!(0), json!(-1.0), json!(1e60), json!(1e-60), json!("2")], "scale: "),
        ("/max_norm", vec![json!(-1), json!("nan"), json!("1"), json!(1e60), json!(1e-60)], "max_norm: "),
        ("/max_norm", vec![Value::Null], "each_tensor: "),
        ("/eps", vec![json!(-1e-6), json!("inf"), json!(1e60), json!(1e-60)], "eps: "),
        ("/norm_type", vec![json!("L3"), json!("l1")], "norm_type: "),
        ("/each_tensor", vec![json!(1)], "each_tensor: "),
        ("/tensors/1/format", vec![json!("F16"), json!("f64"), json!("")], "tensors[1]: format: "),
        ("/expect/found_inf", vec![json!(0)], "expect.found_inf: "),
        ("/expect/overflow", vec![json!("no")], "expect.overflow: "),
    ] {
        for value in values {
            let error = refused_with(&step, pointer, value.clone());
            assert!(error.contains(what), "{error}");
        }
    }
    for bad in [json!(-1), json!("nan"), json!(1e60), json!(1e-60)] {
        let error = refused_with(&value, "/clip_value", bad);
        assert!(error.contains("clip_value: "), "{error}");
    }
    for (pointer, bad, what) in [
        ("/config/scale", json!(0), "config.scale: "),
        ("/config/scale", json!(-2), "config.scale: "),
        ("/config/growth_factor", json!(1.0), "config: growth_factor "),
        ("/config/growth_interval", json!(-1), "config.growth_interval: "),
        ("/config/growth_interval", json!(0), "config: growth_interval "),
        ("/config/max_scale", json!(1e60), "config.max_scale: "),
        ("/updates/0/scale", json!(0), "updates[0].scale: "),
        ("/updates/0/scale", json!(-4), "updates[0].scale: "),
        ("/updates/0/skipped", json!(-1), "updates[0].skipped: "),
        ("/updates", json!([]), "updates: "),
    ] {
        let error = refused_with(&sequence, pointer, bad);
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_word_has_the_digits_of_its_format() {
    let step = &kinds()[0];
    for (tensor, words) in [
        (
            0,
            [
                "4000000 40400000",
                "40000000 040400000",
                "40000000 4040000g",
                "40000000 +4040000",
                "0x400000 40400000",
            ],
        ),
        (1, ["3c0", "03c00", "00003c00", "+3c0", "3c_0"]),
        (2, ["3f8 3f80", "3f80 03f80", "3f800000 3f80", "3f80 -f80", "3f80 3f8\u{e9}"]),
    ] {
        for bits in words {
            let error = refused_with(step, &format!("/tensors/{tensor}/bits"), json!(bits));
            assert!(error.contains(&format!("tensors[{tensor}]: bits: element ")), "{error}");
            let error = refused_with(step, &format!("/expect/tensors/{tensor}"), json!(bits));
            assert!(error.contains(&format!("expect.tensors[{tensor}]: element ")), "{error}");
        }
    }
}

#[test]
fn each_tensor_has_one_result_of_its_length() {
    let step = &kinds()[0];
    for (field, entry) in
        [("nonfinite", json!([0, 0, 0, null])), ("tensors", json!("3f00")), ("each", json!([null, [0, 0]]))]
    {
        for count in [0, 1, 2, 4] {
            let entries = vec![entry.clone(); count];
            let error = refused_with(step, &format!("/expect/{field}"), json!(entries));
            assert!(error.contains(&format!("expect.{field}: {count} entries for 3 tensors")), "{error}");
        }
    }
    for (tensor, bits) in [(0, "3f800000"), (1, ""), (1, "3c00 3c00"), (2, "3f80 3f80 3f80")] {
        let error = refused_with(step, &format!("/expect/tensors/{tensor}"), json!(bits));
        assert!(error.contains(&format!("expect.tensors[{tensor}]: ")), "{error}");
        assert!(error.contains("before"), "{error}");
    }
    let error = refused_with(step, "/expect/nonfinite/1", json!([0, 0, 0]));
    assert!(error.contains("expect.nonfinite[1]"), "{error}");
}

#[test]
fn exact_numbers_have_one_spelling() {
    let step = &kinds()[0];
    let wrong = [
        json!([1, 0]),
        json!([8_388_607, 0]),
        json!([16_777_216, 0]),
        json!([4_294_967_295_u32, 0]),
        json!([0, 1]),
        json!([8_388_608, -2000]),
        json!([8_388_608, 2000]),
        json!([8_388_608, i32::MIN]),
        json!([-8_388_608, 0]),
        json!([8_388_608]),
        json!(1.0),
    ];
    for (pointer, what) in [
        ("/expect/norm", "expect.norm"),
        ("/expect/coefficient", "expect.coefficient"),
        ("/expect/factor", "expect.factor"),
        ("/expect/each/0/0", "expect.each[0]"),
        ("/expect/each/2/1", "expect.each[2]"),
    ] {
        for number in &wrong {
            let error = refused_with(step, pointer, number.clone());
            assert!(error.contains(what), "{error}");
        }
    }
}

#[test]
fn a_step_has_one_limit() {
    let [step, value, _] = kinds();
    let with = |of: &(Value, Parse), field: &str, what: Value| {
        let mut wrong = of.0.clone();
        wrong.as_object_mut().unwrap().insert(field.into(), what);
        refused(of.1, &of.0, &wrong)
    };
    assert!(with(&step, "clip_value", json!(1.0)).contains("clip_value: "));
    assert!(with(&step, "clip_value", Value::Null).contains("clip_value: "));
    assert!(with(&step, "each_tensor", json!(false)).contains("expect.each: "));
    for (field, what) in [("eps", json!(0.0)), ("norm_type", json!("L2")), ("each_tensor", json!(true))] {
        assert!(with(&value, field, what).contains(&format!("{field}: ")), "{field}");
    }
}

#[test]
fn a_file_without_cases_is_refused() {
    for (right, parse) in kinds() {
        for (text, why) in [
            ("[]".to_string(), "no cases"),
            (String::new(), "EOF"),
            ("[".into(), "EOF"),
            (right.to_string(), "invalid type: map, expected a sequence"),
            (format!("[{right}] [{right}]"), "trailing characters"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        // A field given twice, which a `Value` cannot hold.
        let twice = right.to_string().replacen("\"source\":\"test\"", "\"source\":\"a\",\"source\":\"b\"", 1);
        let error = parse(&format!("[{twice}]")).unwrap_err();
        assert!(error.contains(NAME) && error.contains("duplicate field `source`"), "{error}");
    }
}

#[test]
fn the_program_fails_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cases.json");
    let program = example::build("conformance");
    let mut misspelt = step();
    misspelt["max_nrom"] = json!(1.0);
    let mut silent = step();
    silent["expect"]["nonfinite"] = json!([]);
    let mut negative = sequence();
    negative["config"]["scale"] = json!(-1.0);
    for (option, text, why) in [
        ("--steps", json!([misspelt]), "case 0 \"the one\": max_nrom: "),
        ("--steps", json!([silent]), "case 0 \"the one\": expect.nonfinite: 0 entries for 3 tensors"),
        ("--steps", json!([]), "no cases"),
        ("--scaler", json!([negative]), "case 0 \"the one\": config.scale: "),
        ("--scaler", json!([]), "no cases"),
    ] {
        std::fs::write(&file, text.to_string()).unwrap();
        let output = Command::new(&program).arg(option).arg(&file).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        assert!(error.starts_with(&format!("conformance: {}: {why}", file.display())), "{error}");
    }
}
