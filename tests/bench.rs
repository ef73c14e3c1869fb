//! The pieces of the benchmark that need no GPU. That it runs at all, `cargo test` sees by running it.
#![allow(dead_code, reason = "the pieces of a program")]

#[path = "../benches/step/chart.rs"]
mod chart;
#[path = "../benches/step/clock.rs"]
mod clock;
#[path = "../benches/step/compare.rs"]
mod compare;
#[path = "../benches/step/gradients.rs"]
mod gradients;
#[path = "../benches/step/kernels.rs"]
mod kernels;
#[path = "../benches/step/numbers.rs"]
mod numbers;
#[path = "../benches/step/pytorch.rs"]
mod pytorch;
#[path = "../benches/step/record.rs"]
mod record;
#[path = "../benches/step/row.rs"]
mod row;
#[path = "../benches/step/sets.rs"]
mod sets;
#[path = "../benches/step/shapes.rs"]
mod shapes;
#[path = "../benches/step/table.rs"]
mod table;
#[path = "../benches/step/variant.rs"]
mod variant;

use std::time::Duration;

use clock::Timing;
use gradclip::Format;
use gradients::Layout;
use record::{Cut, Record};
use row::{Place, Row, Spread};
use variant::Variant;

#[test]
fn models_have_the_sizes_of_their_papers() {
    let sizes: Vec<(String, usize, u64)> =
        shapes::models().into_iter().map(|m| (m.name.clone(), m.tensors.len(), m.elements())).collect();
    let expected = [
        ("gpt2-small", 148, 124_439_808),
        ("resnet-50", 161, 25_557_032),
        ("llama-3-8b-layer", 9, 218_112_000),
        ("1000-of-1000", 1000, 1_000_000),
        ("one-of-256mi", 1, 268_435_456),
    ];
    assert_eq!(sizes, expected.map(|(name, tensors, elements)| (name.to_owned(), tensors, elements)));
    let small = shapes::models()[0].scaled_down(1 << 40);
    assert_eq!((small.tensors.len(), small.elements()), (148, 148));
}

#[test]
fn a_spread_is_median_and_ends() {
    assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
    assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
    assert_eq!(Spread::of(&[5.0]), Spread { median: 5.0, min: 5.0, max: 5.0 });
}

/// A row of 1e6 bytes of gradients whose rounds took these milliseconds.
fn row(variant: Variant, wall: &[u64], gpu: Option<&[u64]>) -> Row {
    let place = Place {
        shape: "model".into(),
        format: Format::F32,
        layout: Layout::Arena,
        elements: 250_000,
        tensors: 1,
        scale_down: 1,
        bytes: 1_000_000,
    };
    let ms = Duration::from_millis;
    let timings: Vec<Timing> = wall
        .iter()
        .enumerate()
        .map(|(i, &wall)| Timing {
            record: Duration::from_micros(10),
            finish: Duration::from_micros(20),
            wall: ms(wall),
            gpu: gpu.map(|gpu| ms(gpu[i])),
        })
        .collect();
    Row::new(&place, variant, &timings)
}

fn record(results: Vec<Row>) -> Record {
    Record {
        date: "2026-11-29T12:00:00Z".into(),
        environment: serde_json::json!({ "adapter": "one" }),
        cut: Cut { tile_words: 16_384, windows_per_dispatch: 5, lone_window_tiles: 4096 },
        limit_kernels: ["a".into(), "b".into()],
        pytorch: Vec::new(),
        rounds: 3,
        results,
        growth: Vec::new(),
        sets: Vec::new(),
        numbers: Vec::new(),
    }
}

fn contest() -> Record {
    record(vec![
        row(Variant::LimitRead, &[12, 10, 11], Some(&[10, 10, 10])),
        row(Variant::LimitReadWrite, &[21, 22, 20], Some(&[20, 20, 20])),
        row(Variant::Step, &[41, 40, 42], Some(&[40, 39, 41])),
        row(Variant::StepDeferred, &[16, 15, 17], Some(&[12, 13, 14])),
        row(Variant::ThreePass, &[80, 81, 82], Some(&[80, 80, 80])),
        row(Variant::PerTensorReadback, &[410, 420, 400], None),
    ])
}

#[test]
fn shares_and_ratios() {
    let record = contest();
    let of = |variant| record.results.iter().find(|r| r.variant == variant).unwrap();
    let step = of(Variant::Step);
    // By the GPU's clock where both have it, else by the host's.
    assert_eq!(record.share_of_limit(step), Some(30.0 / 40.0));
    assert_eq!(record.ratio_to(step, Variant::ThreePass), Some(0.5));
    assert_eq!(record.ratio_to(step, Variant::PerTensorReadback), Some(0.1));
    assert_eq!(record.ratio_to(step, Variant::PytorchCpu), None);
    assert_eq!(record.share_of_limit(of(Variant::StepDeferred)), Some(10.0 / 13.0));
    assert_eq!(record.share_of_limit(of(Variant::LimitRead)), None);
    assert_eq!(record.ratio_to(of(Variant::StepDeferred), Variant::ThreePass), None, "another job");
    assert_eq!(step.gb_per_s, 3.0 * 1e6 / 40e-3 / 1e9);
    assert_eq!(step.record_us, Some(10.0));
    assert_eq!(row(Variant::PytorchCpu, &[1], None).record_us, None);
}

#[test]
fn the_json_has_the_names_that_others_read() {
    let json = serde_json::to_value(contest()).unwrap();
    let rows = json["results"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|r| r["variant"].as_str().unwrap()).collect();
    let expected =
        ["limit-read", "limit-read-write", "step", "step-deferred", "three-pass", "per-tensor-readback"];
    assert_eq!(names, expected);
    let step = &rows[2];
    assert_eq!(
        (&step["shape"], &step["format"], &step["layout"], &step["elements"]),
        (&"model".into(), &"f32".into(), &"arena".into(), &250_000.into())
    );
    assert_eq!(step["wall_ms"], serde_json::json!({ "median": 41.0, "min": 40.0, "max": 42.0 }));
    assert_eq!(step["gpu_ms"], serde_json::json!({ "median": 40.0, "min": 39.0, "max": 41.0 }));
    assert_eq!(step["samples"], serde_json::json!([41.0, 40.0, 42.0]));
    assert!(step["gb_per_s"].is_f64() && step["record_us"].is_f64());
    assert!(rows[5]["gpu_ms"].is_null());
    for variant in Variant::ALL {
        assert_eq!(serde_json::to_value(variant).unwrap(), variant.name());
    }
    let back: Record = serde_json::from_value(json).unwrap();
    assert_eq!(table::markdown(&back), table::markdown(&contest()));
}

#[test]
fn the_table_has_a_line_for_each_row() {
    let text = table::markdown(&contest());
    assert!(
        text.contains("| model | f32 | arena | 40.0 ms | 30.0 ms | 1.33 x | 0.500 x | 0.100 x | - |"),
        "{text}"
    );
    for row in &contest().results {
        let line = format!("| f32 | arena | `{}` | ", row.variant.name());
        assert_eq!(text.matches(&line).count(), 1, "{text}");
    }
    let spread = |median| Spread { median, min: median, max: median };
    let mut numbers = contest();
    numbers.numbers.push(numbers::NumbersRow {
        numbers: "a constant limit".into(),
        tensors: 150,
        record_us: spread(12.25),
        finish_us: spread(40.0),
    });
    let text = table::markdown(&numbers);
    assert!(
        text.contains("| a constant limit | 150 | 12.2 (12.2 to 12.2) | 40.0 (40.0 to 40.0) |"),
        "{text}"
    );
    let mut smaller = contest();
    smaller.results.iter_mut().for_each(|row| row.scale_down = 16);
    assert!(table::markdown(&smaller).contains("| model / 16 | f32 "));
}

#[test]
fn a_comparison_tells_what_moved() {
    let old = contest();
    assert!(compare::compare(&old, &old).contains("0 rows moved"));
    let mut new = contest();
    new.results[2] = row(Variant::Step, &[21, 20, 22], Some(&[20, 20, 21]));
    // Out of the samples, but by less than noise.
    new.results[4] = row(Variant::ThreePass, &[83, 83, 83], Some(&[83, 83, 83]));
    new.results.push(row(Variant::PytorchCpu, &[1], None));
    let text = compare::compare(&old, &new);
    assert!(text.contains("| model | f32 | arena | `step` | 40.000 | 20.000 | 0.50 |"), "{text}");
    assert!(
        text.contains(
            "1 rows moved by more than 5 % and out of the older samples, 5 did not, 1 are new, 0 are gone."
        ),
        "{text}"
    );
    assert!(!text.contains("different adapters"));
    new.cut.windows_per_dispatch = 1;
    assert!(compare::compare(&old, &new).contains("another cut"));
    new.environment = serde_json::json!({ "adapter": "two" });
    assert!(compare::compare(&old, &new).contains("different adapters"));
}

#[test]
fn the_chart_has_a_bar_for_each_variant() {
    let mut run = contest();
    for (elements, step) in [(4096, 1), (16_384, 3)] {
        for (variant, ms) in [(Variant::LimitRead, 1), (Variant::LimitReadWrite, 1), (Variant::Step, step)] {
            let mut row = row(variant, &[ms], None);
            (row.shape, row.elements) = (format!("one-of-{elements}"), elements);
            run.growth.push(row);
        }
    }
    let svg = chart::svg(&run).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for name in ["step-deferred", "three-pass", "per-tensor-readback", "1.33 x", "13.67 x", "elements"] {
        assert!(svg.contains(name), "{name} is not in {svg}");
    }
    assert!(chart::svg(&record(Vec::new())).is_ok(), "nothing measured, nothing drawn");
}
