//! What the built-in cases meet.

use gradclip::Format;
use serde_json::Value;

use super::common::scaler;
use super::text::steps;

/// A tensor of a case: its format, and the bits of its elements before and after.
struct Tensor {
    format: Format,
    before: Vec<u32>,
    after: Vec<u32>,
    nonfinite: [u64; 3],
}

/// A case, with what it is asked here.
struct Case {
    given: Value,
    tensors: Vec<Tensor>,
}

const ONE: (u64, i64) = (1 << 23, -23);

impl Case {
    fn new(given: Value) -> Self {
        let expect = &given["expect"];
        let tensors = given["tensors"].as_array().unwrap().iter().enumerate().map(|(i, tensor)| Tensor {
            format: Format::ALL.into_iter().find(|f| tensor["format"] == f.name()).unwrap(),
            before: bits(&tensor["bits"]),
            after: bits(&expect["tensors"][i]),
            nonfinite: [0, 1, 2].map(|kind| expect["nonfinite"][i][kind].as_u64().unwrap()),
        });
        Self { tensors: tensors.collect(), given }
    }

    fn taken(&self) -> bool {
        self.given["expect"]["found_inf"] == false
    }

    fn overflow(&self) -> bool {
        self.given["expect"]["overflow"] == true
    }

    fn r24(&self, name: &str) -> (u64, i64) {
        let value = &self.given["expect"][name];
        (value[0].as_u64().unwrap(), value[1].as_i64().unwrap())
    }

    fn clipped(&self) -> bool {
        self.taken() && self.r24("coefficient") != ONE
    }

    fn has(&self, format: Format) -> bool {
        self.tensors.iter().any(|tensor| tensor.format == format && !tensor.before.is_empty())
    }
}

fn bits(text: &Value) -> Vec<u32> {
    let words = text.as_str().unwrap().split_whitespace();
    words.map(|word| u32::from_str_radix(word, 16).unwrap()).collect()
}

fn subnormal(format: Format, bits: u32) -> bool {
    let (exponent, fraction) = match format {
        Format::F32 => (0x7f80_0000, 0x007f_ffff),
        Format::F16 => (0x7c00, 0x03ff),
        Format::Bf16 => (0x7f80, 0x007f),
    };
    bits & exponent == 0 && bits & fraction != 0
}

#[test]
fn the_steps_meet_what_a_driver_gets_wrong() {
    let cases: Vec<Case> = steps().into_iter().map(Case::new).collect();
    let count = |what: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| what(case)).count();
    let tensor = |what: &dyn Fn(&Case, &Tensor) -> bool| {
        count(&|case: &Case| case.tensors.iter().any(|tensor| what(case, tensor)))
    };
    let mut met = Vec::new();
    for format in Format::ALL {
        let mut meets = |what: &str, cases: usize| met.push((format!("{format}: {what}"), cases));
        meets("clipped", count(&|c| c.has(format) && c.clipped()));
        meets(
            "unscaled, not clipped",
            count(&|c| c.has(format) && c.taken() && !c.clipped() && c.r24("factor") != ONE),
        );
        meets("nothing to do", count(&|c| c.has(format) && c.r24("factor") == ONE));
        for (kind, name) in ["NaN", "+inf", "-inf"].into_iter().enumerate() {
            meets(name, tensor(&|_, t| t.format == format && t.nonfinite[kind] > 0));
        }
        meets("overflow", count(&|c| c.has(format) && c.overflow()));
        let is = |bits: &[u32]| bits.iter().any(|&b| subnormal(format, b));
        meets(
            "subnormals in a clipped step",
            tensor(&|c, t| t.format == format && c.clipped() && is(&t.before)),
        );
        meets(
            "a result that is subnormal",
            tensor(&|_, t| t.format == format && t.before != t.after && is(&t.after)),
        );
        meets("odd length", tensor(&|_, t| t.format == format && t.before.len() % 2 == 1));
        meets(
            "more than 200 elements",
            tensor(&|c, t| t.format == format && c.clipped() && t.before.len() > 200),
        );
    }
    for format in Format::ALL {
        // Beyond the first small tile.
        let far = |t: &Tensor| t.before.len() as u64 / format.per_word() > 61 && t.nonfinite != [0; 3];
        met.push((
            format!("{format}: nonfinite in a long tensor"),
            tensor(&|_, t| t.format == format && far(t)),
        ));
    }
    let exponent = |case: &Case| case.r24("factor").1 + 150;
    let mut meets = |what: &str, cases: usize| met.push((what.to_string(), cases));
    meets("a factor below f32's normal numbers", count(&|c| c.taken() && exponent(c) < 1));
    meets("a norm above f32", count(&|c| c.r24("norm").1 + 150 > 254));
    meets(
        "two formats",
        count(&|c| Format::ALL.into_iter().filter(|&f| c.has(f)).count() == 2 && c.clipped()),
    );
    meets("three formats", count(&|c| Format::ALL.into_iter().all(|f| c.has(f)) && c.clipped()));
    meets("no elements", count(&|c| c.tensors.iter().all(|t| t.before.is_empty())));
    meets(
        "an empty tensor among others",
        count(&|c| c.clipped() && c.tensors.iter().any(|t| t.before.is_empty())),
    );
    meets("more tensors than a workgroup has threads", count(&|c| c.tensors.len() > 256));
    meets("no limit", count(&|c| c.given["max_norm"].is_null()));
    meets("an infinite limit", count(&|c| c.given["max_norm"] == "inf"));
    meets("a limit of zero", count(&|c| c.given["max_norm"] == 0.0));
    meets("a scale that is no power of two", count(&|c| c.given["scale"] == 3.0));
    let missing: Vec<&str> =
        met.iter().filter(|(_, cases)| *cases == 0).map(|(what, _)| what.as_str()).collect();
    assert!(missing.is_empty(), "no built-in case for: {missing:?}");
}

#[test]
fn the_sequences_meet_every_rule_of_the_scale() {
    let cases: Vec<Value> = serde_json::from_str(scaler::BUILT_IN).unwrap();
    let (mut grew, mut backed_off, mut kept, mut overflow) = (0, 0, 0, 0);
    for case in &cases {
        let mut scale = case["config"]["scale"].as_f64().unwrap();
        for update in case["updates"].as_array().unwrap() {
            let next = update["scale"].as_f64().unwrap();
            let bad = update["found_inf"] == true;
            grew += usize::from(!bad && next > scale);
            backed_off += usize::from(bad && next < scale);
            kept += usize::from(bad && next == scale);
            overflow += usize::from(update["overflow"] == true);
            scale = next;
        }
    }
    assert!(grew > 3 && backed_off > 3 && kept > 0 && overflow > 0, "{grew} {backed_off} {kept} {overflow}");
}
