//! The training example: its gradients, its f16, and the program as its users run it.

mod common;

// What `reference` needs, at the root as in the example.
#[allow(dead_code, reason = "the test uses a part")]
#[path = "../examples/train/data.rs"]
mod data;
#[allow(dead_code, reason = "the test uses a part")]
#[path = "../examples/train/model.rs"]
mod model;
#[allow(dead_code, reason = "the test uses a part")]
#[path = "../examples/train/reference.rs"]
mod reference;
#[allow(dead_code, reason = "the test uses a part")]
#[path = "../examples/train/rule.rs"]
mod rule;

use std::path::Path;
use std::process::{Command, Output};

use gradclip::wgpu;
use serde_json::Value;
use wgpu::util::DeviceExt as _;

/// Cargo puts examples beside the folder of the tests.
fn train(arguments: &[&str]) -> Output {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let program = folder.join("examples").join(format!("train{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "{}: build it with `cargo build --example train`", program.display());
    Command::new(program).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs with a log and a chart in a folder of its own: output, log, chart.
fn train_and_read(arguments: &[&str]) -> (Output, Vec<Value>, String) {
    let folder = tempfile::tempdir().unwrap();
    let (log, svg) = (folder.path().join("new/log.jsonl"), folder.path().join("new/chart.svg"));
    let files = ["--log", log.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let output = train(&[&files, arguments].concat());
    let rows = std::fs::read_to_string(&log).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output, rows, std::fs::read_to_string(&svg).unwrap())
}

/// Accuracy, skipped steps and steps of `accuracy A, skipped S of N`.
fn last_line(output: &Output) -> (f64, u32, u32) {
    let text = stdout(output);
    let line = text.lines().last().unwrap();
    let numbers = line.strip_prefix("accuracy ").and_then(|rest| {
        let (accuracy, rest) = rest.split_once(", skipped ")?;
        let (skipped, steps) = rest.split_once(" of ")?;
        Some((accuracy.parse().ok()?, skipped.parse().ok()?, steps.parse().ok()?))
    });
    numbers.unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn reference_gradients_match_finite_differences() {
    let split = data::Split::new().unwrap();
    assert_eq!((split.train.len(), split.test.len()), (1438, 359));
    let parameters: reference::Parameters =
        model::initial(1).iter().map(|layer| layer.iter().map(|&w| f64::from(w)).collect()).collect();
    let rows: Vec<u32> = (0..32).collect();
    let loss = |parameters: &reference::Parameters| reference::backward(parameters, &split.train, &rows).0;
    let (_, gradients) = reference::backward(&parameters, &split.train, &rows);
    let step = 1e-6;
    let mut nonzero = 0;
    for layer in 0..model::LAYERS.len() {
        for tensor in model::tensors(layer) {
            for i in (tensor.first..tensor.first + tensor.len).step_by(tensor.len.div_ceil(12)) {
                let moved = |by: f64| {
                    let mut moved = parameters.clone();
                    moved[layer][i] += by;
                    loss(&moved)
                };
                let slope = (moved(step) - moved(-step)) / (2.0 * step);
                let gradient = gradients[layer][i];
                assert!((slope - gradient).abs() < 1e-7, "{} {i}: {slope} {gradient}", tensor.name);
                nonzero += u32::from(gradient.abs() > 1e-5);
            }
        }
    }
    assert!(nonzero > 30, "{nonzero}");
}

#[test]
fn gpu_agrees_with_the_reference() {
    for rule in ["sgd", "adamw"] {
        let output = train(&["--baseline", "--optimizer", rule]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.lines().last().unwrap().starts_with("they agree: "), "{text}");
    }
}

#[test]
fn scale_overflows_and_recovers_and_wrong_order_stalls() {
    let (output, rows, svg) = train_and_read(&["--steps", "50", "--wrong-order"]);
    // Too short to learn enough.
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (accuracy, skipped, steps) = last_line(&output);
    assert!(accuracy > 0.5 && accuracy <= 0.95 && steps == 50, "{accuracy} {steps}");

    let (correct, wrong) = rows.split_at(50);
    assert_eq!(wrong.len(), 50);
    for (i, row) in correct.iter().enumerate() {
        assert_eq!((row["run"].as_str(), row["step"].as_u64()), (Some("correct"), Some(i as u64)));
        let (scale, next) = (row["scale"].as_f64().unwrap(), row["next_scale"].as_f64().unwrap());
        if let Some(after) = correct.get(i + 1) {
            assert_eq!(after["scale"], row["next_scale"], "step {i}");
        }
        let bad = row["skipped"] == true;
        assert!(if bad { next == scale / 2.0 } else { next == scale || next == 2.0 * scale }, "step {i}");
        let sets = row["sets"].as_array().unwrap();
        assert_eq!(sets.len(), 2);
        assert_eq!(sets.iter().any(|set| set["found_inf"] == true), bad, "step {i}");
        for set in sets {
            assert_eq!(set["microbatches"], 2);
            assert_eq!(set["skipped"] == true, !set["nonfinite"].as_array().unwrap().is_empty(), "step {i}");
            assert!(set["norm_after"].as_f64().is_none_or(|norm| norm <= 0.2), "step {i}: {set}");
        }
    }
    let counted = correct.iter().filter(|row| row["skipped"] == true).count();
    assert_eq!(counted, skipped as usize);
    assert!(correct[0]["skipped"] == true && skipped >= 3, "{skipped}");
    // The first overflows end, and training moves on.
    assert!(correct[10..30].iter().any(|row| row["skipped"] == false && row["sets"][0]["clipped"] == true));
    let loss = |row: &Value| row["loss"].as_f64().unwrap();
    assert!(loss(&correct[49]) < 0.5 * loss(&correct[0]));
    assert!(loss(&wrong[49]) > 0.9 * loss(&wrong[0]));
    assert!(wrong.iter().all(|row| row["sets"][0]["norm_after"].as_f64().is_none_or(|norm| norm < 1e-4)));

    let table = stdout(&output);
    assert!(table.contains("\nwrong order ") && table.contains("\ncorrect "), "{table}");
    for part in ["Training loss", "Test accuracy", "Loss scale", "Gradient norm, layer 1", "wrong order"] {
        assert!(svg.contains(part), "{part}");
    }
    assert_well_formed(&svg);
}

#[test]
fn trains_to_the_goal() {
    let (output, rows, _) = train_and_read(&["--steps", "300"]);
    let (accuracy, skipped, steps) = last_line(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(accuracy > 0.95 && skipped > 5 && steps == 300, "{accuracy} {skipped} {steps}");
    assert_eq!(rows.len(), 300);
    assert!(rows.iter().all(|row| row["lost_reports"] == 0));
    // The scale grows back into an overflow after it has recovered.
    assert!(rows[50..].iter().any(|row| row["skipped"] == true));
}

#[test]
fn bad_arguments_end_with_status_2_and_one_line() {
    let cases: [(&[&str], &str); 6] = [
        (&["--steps", "0"], "steps must be from 1"),
        (&["--steps", "ten"], "steps must be from 1"),
        (&["--optimizer", "rmsprop"], "must be sgd or adamw"),
        (&["--speed"], "--speed"),
        (&["--adapter", "no such adapter"], "no adapter named \"no such adapter\"; present: "),
        (&["--steps", "1", "--log", "Cargo.toml/log"], "Cargo.toml"),
    ];
    for (arguments, expected) in cases {
        let output = train(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        assert!(text.starts_with("train: ") && text.contains(expected), "{arguments:?}: {text}");
    }
    let help = train(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for option in
        ["--wrong-order", "--per-tensor", "--per-microbatch", "--compare", "--baseline", "--adapter"]
    {
        assert!(stdout(&help).contains(option), "{option}");
    }
}

/// The kernels round to f16 as IEEE does, and overflow to infinity: without that no scale would ever be too large.
#[test]
fn half_bits_rounds_as_ieee() {
    // Every f16, halfway to its neighbour, and the f32 on either side of both.
    let patterns = (0u16..=0xffff).map(half::f16::from_bits).filter(|h| h.is_finite());
    let mut values: Vec<f32> = patterns
        .flat_map(|h| {
            let exact = h.to_f32();
            let next = half::f16::from_bits(h.to_bits() + 1);
            let middle =
                if next.is_finite() { f32::midpoint(exact, next.to_f32()) } else { exact.signum() * 65520.0 };
            [exact, middle]
                .into_iter()
                .flat_map(|v| [-1, 0, 1].map(|by| f32::from_bits(v.to_bits().wrapping_add_signed(by))))
        })
        .collect();
    values.extend([f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -1e-45, 1e5, f32::NAN]);
    let expected: Vec<u16> = values.iter().map(|v| half::f16::from_f32(*v).to_bits()).collect();
    let source = format!(
        "{}\n@group(0) @binding(0) var<storage, read_write> words: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let i = id.x + id.y * 65536u;
            if (i < arrayLength(&words)) {{ words[i] = half_bits(bitcast<f32>(words[i])); }}
        }}",
        include_str!("../examples/train/half.wgsl")
    );
    for gpu in common::gpus() {
        let got = run_kernel(&gpu.context, &source, &values);
        for ((value, expected), got) in values.iter().zip(&expected).zip(got) {
            let nan = value.is_nan() && half::f16::from_bits(got as u16).is_nan();
            assert!(nan || got == u32::from(*expected), "{value:e}: {got:04x}, expected {expected:04x}");
        }
    }
}

/// Runs a kernel over one buffer, in rows of 65536 threads.
fn run_kernel(gpu: &gradclip::Context, source: &str, values: &[f32]) -> Vec<u32> {
    let device = gpu.device();
    let buffer = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: None,
        contents: bytemuck::cast_slice(values),
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
    });
    let source = wgpu::ShaderSource::Wgsl(source.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(1024, values.len().div_ceil(65536) as u32, 1);
    drop(pass);
    gpu.queue().submit([encoder.finish()]);
    let (sender, receiver) = std::sync::mpsc::channel();
    wgpu::util::DownloadBuffer::read_buffer(device, gpu.queue(), &buffer.slice(..), move |result| {
        sender.send(result).unwrap();
    });
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let bytes = receiver.recv().unwrap().unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Every element is closed, in order, and every path consists of numbers.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<String>::new());
    assert!(svg.starts_with("<svg "));
    for path in svg.split(" d=\"").skip(1) {
        let (path, _) = path.split_once('"').unwrap();
        let mut numbers = path.split(['M', 'L', 'H', 'h', 'v', ' ']).filter(|number| !number.is_empty());
        assert!(numbers.all(|number| number.parse().is_ok_and(f64::is_finite)), "{path}");
    }
}
