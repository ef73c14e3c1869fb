//! The built-in text against the answers of the oracle.

use serde_json::Value;

use super::common::cases;
use super::text::{LEFT_OUT, expected, steps};

const BUILT_IN: &str = include_str!("../../src/self_test/cases.txt");

#[test]
fn the_built_in_text_says_what_the_oracle_says() {
    let expected = expected();
    if BUILT_IN != expected {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/cases.txt");
        std::fs::write(path, &expected).unwrap();
        let pairs = (1..).zip(BUILT_IN.lines().zip(expected.lines()));
        let first = pairs.into_iter().find(|(_, (is, should))| is != should);
        panic!(
            "src/self_test/cases.txt differs, first at {first:?}; what it should be is in {path}: copy it there"
        );
    }
    assert!(BUILT_IN.len() < 60_000, "{} bytes in every program that uses the crate", BUILT_IN.len());
}

/// Size is the only reason.
#[test]
fn only_the_largest_steps_are_left_out() {
    let all: Vec<Value> = serde_json::from_str(cases::BUILT_IN).unwrap();
    let name = |case: &Value| case["name"].as_str().unwrap().to_string();
    let bytes = |case: &Value| -> usize {
        let tensors = case["tensors"].as_array().unwrap();
        tensors.iter().map(|tensor| tensor["bits"].as_str().unwrap().len()).sum()
    };
    let names: Vec<String> = all.iter().map(name).collect();
    assert!(LEFT_OUT.iter().all(|out| names.iter().any(|name| name == out)), "{LEFT_OUT:?}");
    let built_in: Vec<String> = steps().iter().map(name).collect();
    for case in &all {
        let left_out = LEFT_OUT.contains(&name(case).as_str());
        assert_ne!(left_out, built_in.contains(&name(case)), "{}", name(case));
        assert!(!left_out || bytes(case) >= 9_000, "{}, {} bytes", name(case), bytes(case));
    }
}

/// Significands times 3/4: of 24 bits 8388609 to 12582913.5 and 8388611 to 12582916.5 (with one bit more); of 11 bits
/// 1366 to 1024.5, 1370 to 1027.5, 1367 to 1025.25, 1369 to 1026.75, and 1025 to 1537.5, 1027 to 1540.5; of 8 bits 174 to
/// 130.5, 178 to 133.5, and 129 to 193.5, 131 to 196.5. Subnormals 2, 6 and 10 to 1.5, 4.5 and 7.5.
#[test]
fn ties_go_to_even() {
    let case = BUILT_IN.split("\n\n").find(|case| case.starts_with("step ties in each format\n")).unwrap();
    let want = [
        "step ties in each format",
        "given 1.0 786432.0 0.0",
        "found finite 8388608*2^-3 12582912*2^-24 12582912*2^-24",
        "1 f32 49800000 3f800001 3f800003 00000002 00000006 0000000a > 49400000 3f400002 3f400004 00000002 00000004 \
         00000008",
        "1 f16 3d56 3d5a 3d57 3d59 3c01 3c03 8002 0006 000a > 3c00 3c04 3c01 3c03 3a02 3a04 8002 0004 0008",
        "1 bf16 3fae 3fb2 bf81 3f83 0002 0006 000a > 3f82 3f86 bf42 3f44 0002 0004 0008",
    ];
    assert_eq!(case.lines().collect::<Vec<_>>(), want);
}
