//! Steps that run: on recorded gradients, within the limit, clipped, skipped.

use safetensors::tensor::Dtype;

use super::common::{adapters, f32s, gpus};
use super::process::{clip, clip_with, contents, data, halves, save};

const AGREES: &str = "the GPU equals the CPU reference on every bit";

#[test]
fn without_arguments_it_clips_recorded_gradients() {
    let run = clip([""; 0]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(run.row("agreement"), AGREES);
    assert_eq!(run.row("result"), "unscaled and clipped");
    assert_eq!(run.row("tensors"), "6 of 36 (6 f16), prefix grad/1/");
    assert_eq!(run.row("elements"), "3,519 (7,038 bytes)");
    assert_eq!(run.row("scale"), "256");
    assert_eq!(run.row("nonfinite"), "none");
    // norm_f64 of digits_mlp_f16.json, step 1: 0.15178505937131398.
    assert_eq!(run.row("norm before"), "0.15178506");
    let after: f64 = run.row("norm after").strip_suffix(" (measured)").unwrap().parse().unwrap();
    assert!((0.1399..0.1401).contains(&after), "{after}");
    assert!(run.rows("wrote").is_empty());
}

#[test]
fn default_scale_and_limit_are_those_of_the_recording() {
    let json = std::fs::read_to_string(data("digits_mlp_f16.json")).unwrap();
    let recording: serde_json::Value = serde_json::from_str(&json).unwrap();
    let step = &recording["steps"][1];
    let run = clip(["--cpu"]);
    assert_eq!(run.row("scale").parse::<f64>().unwrap(), step["scale"].as_f64().unwrap());
    let max_norm = run.row("max_norm").split(',').next().unwrap();
    assert_eq!(max_norm.parse::<f64>().unwrap(), step["max_norm"].as_f64().unwrap());
}

/// Step 3 of the recorded run is within its limit, so PyTorch's result is the unscaled gradient and nothing else.
#[test]
fn within_the_limit_the_result_is_pytorchs_on_every_bit_on_every_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let file = data("digits_mlp_amp_f16.safetensors");
    let want = contents(&file, "result/3/");
    assert_eq!(want.len(), 6);
    for gpu in gpus() {
        let (out, label) = (folder.path().join("out.safetensors"), adapters::label(&gpu.info));
        let args =
            ["--scale", "2097152", "--max-norm", "0.15", "--prefix", "grad/3/", "--adapter", &label, "-o"];
        let run =
            clip([file.as_os_str()].into_iter().chain(args.map(AsRef::as_ref)).chain([out.as_os_str()]));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        assert_eq!(run.row("adapter"), label);
        assert_eq!(run.row("agreement"), AGREES);
        assert_eq!(run.row("result"), "unscaled; the norm is within the limit");
        assert!(run.row("coefficient").starts_with("1, "), "{run:?}");
        let got = contents(&out, "");
        assert_eq!(got.len(), 6);
        for (name, got) in got {
            assert_eq!(got, want[&name.replace("grad/", "result/")], "{name}");
        }
    }
}

#[test]
fn the_cpu_writes_the_same_file_as_the_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["gpu", "cpu"].map(|name| folder.path().join(name));
    for name in ["digits_mlp_f16", "digits_mlp_bf16"] {
        let file = data(&format!("{name}.safetensors"));
        let args = ["--scale", "8", "--max-norm", "0.01", "--prefix", "grad/1/"];
        let [gpu, cpu] = [(&paths[0], None), (&paths[1], Some("--cpu"))].map(|(out, cpu)| {
            let mut all = vec![file.as_os_str(), "-o".as_ref(), out.as_os_str()];
            all.extend(args.iter().copied().chain(cpu).map(AsRef::<std::ffi::OsStr>::as_ref));
            clip(all)
        });
        assert_eq!((gpu.code, cpu.code), (Some(0), Some(0)), "{gpu:?} {cpu:?}");
        assert_eq!(gpu.row("agreement"), AGREES);
        assert_eq!(cpu.row("agreement"), "not checked: the CPU reference ran alone");
        for label in ["norm before", "norm after", "coefficient", "result"] {
            assert_eq!(gpu.row(label), cpu.row(label));
        }
        assert_eq!(gpu.row("result"), "unscaled and clipped");
        assert!(std::fs::read(&paths[0]).unwrap() == std::fs::read(&paths[1]).unwrap(), "{name}");
    }
}

#[test]
fn nonfinite_gradients_are_named_and_written_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    save(
        &file,
        &[
            ("good", Dtype::F32, &[2], &f32s(&[1.0, 2.0])),
            ("some", Dtype::F32, &[2, 3], &f32s(&[1.0, -inf, nan, inf, nan, 5.0])),
            ("half", Dtype::F16, &[3], &halves(&[0x3c00, 0x3c00, 0x7c00])),
        ],
        &[],
    );
    for cpu in [None, Some("--cpu")] {
        let args = ["--scale", "2", "--max-norm", "1"].into_iter().chain(cpu).map(AsRef::as_ref);
        let run = clip([file.as_os_str(), "-o".as_ref(), out.as_os_str()].into_iter().chain(args));
        assert_eq!((run.code, run.stderr.as_str()), (Some(3), ""), "{run:?}");
        let bad = run.rows("nonfinite");
        assert_eq!(
            bad,
            ["some: 2 NaN, 1 +inf, 1 -inf, first at 1", "half: 0 NaN, 1 +inf, 0 -inf, first at 2"]
        );
        assert_eq!(run.row("norm before"), "none: something is not finite");
        assert_eq!(run.row("result"), "skipped, found inf or NaN; every gradient is as it was");
        assert_eq!(contents(&out, ""), contents(&file, ""));
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn a_result_that_would_overflow_skips_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    save(&file, &[("g", Dtype::F16, &[1], &halves(&[0x7bff]))], &[]);
    let args = ["--scale", "0.5", "--max-norm", "inf", "-o"].map(AsRef::as_ref);
    let run = clip([file.as_os_str()].into_iter().chain(args).chain([out.as_os_str()]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(3), ""), "{run:?}");
    assert_eq!(run.row("result"), "skipped, a result would overflow its format; every gradient is as it was");
    assert_eq!(run.row("norm before"), "131008");
    assert_eq!(run.row("nonfinite"), "none");
    assert_eq!(run.row("agreement"), AGREES);
    assert_eq!(contents(&out, ""), contents(&file, ""));
}

#[test]
fn eps_is_part_of_the_coefficient() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.safetensors");
    save(&file, &[("g", Dtype::F32, &[2], &f32s(&[3.0, 4.0]))], &[]);
    for (eps, coefficient) in [("0", "0.2, "), ("5", "0.1, ")] {
        let args = ["--scale", "1", "--max-norm", "1", "--eps", eps].map(AsRef::as_ref);
        let run = clip([file.as_os_str()].into_iter().chain(args));
        assert!(run.row("coefficient").starts_with(coefficient), "{run:?}");
    }
}

/// No Vulkan driver and no GL vendor: as on a machine without a GPU.
#[cfg(target_os = "linux")]
#[test]
fn without_an_adapter_the_cpu_does_it_and_says_what_to_install() {
    let none = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"]
        .map(|v| (v, Some("/nonexistent")));
    let run = clip_with([""; 0], &none);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.row("adapter").contains("so the CPU reference does the work"), "{run:?}");
    assert!(run.row("adapter").contains("apt-get install mesa-vulkan-drivers"), "{run:?}");
    assert_eq!(run.row("result"), "unscaled and clipped");

    let run = clip_with(["--adapter", "llvmpipe"], &none);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.contains("mesa-vulkan-drivers"), "{run:?}");
}
