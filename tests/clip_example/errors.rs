//! Every error: one line, status 2, no output file, nothing left in its folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;

use super::common::{adapters, f32s, gpus};
use super::process::{Run, clip, clip_with, contents, data, listing, save};

/// Runs `clip FILE ARGS -o OUT` and checks all that errors have in common. Returns the line without the path of FILE.
fn refused(file: &Path, args: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors");
    let mut all: Vec<&OsStr> = vec![file.as_os_str()];
    all.extend(args.iter().map(OsStr::new));
    all.extend([OsStr::new("-o"), out.as_os_str()]);
    let line = one_line(&clip(all));
    assert_eq!(listing(folder.path()), [""; 0], "{line}");
    line.replace(&format!("{file:?}"), "FILE")
}

fn one_line(run: &Run) -> String {
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    run.stderr.strip_prefix("clip: ").unwrap_or_else(|| panic!("{run:?}")).trim_end().into()
}

const GOOD: [&str; 4] = ["--scale", "1", "--max-norm", "1"];

#[test]
fn numbers_out_of_their_domain() {
    let file = data("digits_mlp_f16.safetensors");
    for (option, value, why) in [
        ("--max-norm", "NaN", "max_norm NaN must be 0 or more"),
        ("--max-norm", "-1", "max_norm -1 must be 0 or more"),
        ("--max-norm", "-inf", "max_norm -inf must be 0 or more"),
        ("--max-norm", "much", "--max-norm \"much\" is not a number"),
        ("--max-norm", "1e-60", "--max-norm 1e-60 is outside the range of f32"),
        ("--max-norm", "1e60", "--max-norm 1e60 is outside the range of f32"),
        ("--scale", "0", "loss scale 0 must be positive and finite"),
        ("--scale", "-0", "loss scale -0 must be positive and finite"),
        ("--scale", "-2", "loss scale -2 must be positive and finite"),
        ("--scale", "inf", "loss scale inf must be positive and finite"),
        ("--scale", "nan", "loss scale NaN must be positive and finite"),
        ("--scale", "", "--scale \"\" is not a number"),
        ("--eps", "-1e-6", "eps -0.000001 must be 0 or more and finite"),
        ("--eps", "inf", "eps inf must be 0 or more and finite"),
    ] {
        let line = refused(&file, &[&GOOD[..], &[option, value]].concat());
        assert!(line.starts_with(why), "{line}");
    }
}

#[test]
fn a_command_line_that_makes_no_sense() {
    let file = data("digits_mlp_f16.safetensors");
    for (args, why) in [
        (&["--max-norm", "1"][..], "--scale is missing; usage: clip FILE"),
        (&["--scale", "1"], "--max-norm is missing; usage: clip FILE"),
        (&["--maxnorm", "1"], "invalid option '--maxnorm'; usage: clip FILE"),
        (&["another.safetensors"], "unexpected argument \"another.safetensors\"; usage: clip FILE"),
        (
            &["--scale", "1", "--max-norm", "1", "--cpu", "--adapter", "x"],
            "--cpu and --adapter exclude each other",
        ),
    ] {
        let line = refused(&file, args);
        assert!(line.starts_with(why), "{line}");
    }
    let line = one_line(&clip(["--scale"]));
    assert!(line.starts_with("missing argument for option '--scale'; usage: clip FILE"), "{line}");
    let help = clip(["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.starts_with("usage: clip FILE.safetensors --scale S --max-norm M"));
}

#[test]
fn files_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let whole = std::fs::read(data("digits_mlp_f16.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let with_header = |header: &str, rest: usize| {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; rest]].concat()
    };
    let gap = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let shape = r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#;
    for (file, why) in [
        (folder.path().join("missing"), "FILE: "),
        (folder.path().into(), "FILE: is a folder"),
        (at("empty", b""), "FILE: has 0 bytes: truncated"),
        (at("seven", &whole[..7]), "FILE: has 7 bytes: truncated"),
        (at("header", &whole[..header - 1]), "FILE: has "),
        (at("nothing", &whole[..header]), "FILE: truncated: the header describes "),
        (at("last", &whole[..whole.len() - 1]), "FILE: truncated: the header describes "),
        (at("more", &[&whole[..], b"x"].concat()), "FILE: overlong: the header describes "),
        (at("text", b"These are no tensors at all."), "FILE: has 28 bytes, but claims a header of "),
        (at("json", &with_header("{\"a\":", 0)), "FILE: not a safetensors file, its header is broken: "),
        (at("gap", &with_header(gap, 8)), "FILE: not a safetensors file, its header is broken: "),
        (at("shape", &with_header(shape, 8)), "FILE: not a safetensors file, its header is broken: "),
        (at("none", &with_header("{}", 0)), "FILE: holds no tensors"),
    ] {
        let line = refused(&file, &GOOD);
        assert!(line.starts_with(why), "{file:?}: {line}");
    }
}

#[test]
fn a_dtype_that_cannot_be_clipped_is_named_with_its_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.safetensors");
    let grad = f32s(&[3.0, 4.0]);
    save(
        &file,
        &[
            ("grad/a", Dtype::F32, &[2], &grad),
            ("grad/b", Dtype::I64, &[1], &[0; 8]),
            ("step", Dtype::I64, &[1], &[0; 8]),
        ],
        &[],
    );
    let want = "FILE: tensor \"grad/b\" has dtype \"I64\", but only F32, F16 and BF16 can be clipped";
    assert_eq!(refused(&file, &[&GOOD[..], &["--prefix", "grad/"]].concat()), want);
    // What the prefix leaves out may have any dtype.
    let args = [&GOOD[..], &["--prefix", "grad/a"]].concat();
    let run = clip([file.as_os_str()].into_iter().chain(args.into_iter().map(OsStr::new)));
    assert_eq!((run.code, run.row("tensors")), (Some(0), "1 of 3 (1 f32), prefix grad/a"), "{run:?}");

    let header = r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F128","shape":[],"data_offsets":[4,20]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 20]].concat();
    std::fs::write(&file, bytes).unwrap();
    let want = "FILE: tensor \"y\" has dtype \"F128\", but only F32, F16 and BF16 can be clipped";
    assert_eq!(refused(&file, &GOOD), want);
}

#[test]
fn a_prefix_that_matches_nothing() {
    let line = refused(&data("digits_mlp_f16.safetensors"), &[&GOOD[..], &["--prefix", "grad/9/"]].concat());
    assert!(line.starts_with("FILE: no tensor's name begins with \"grad/9/\"; it holds \"grad/0/"), "{line}");
}

#[test]
fn an_unknown_adapter_lists_those_present() {
    let args = [&GOOD[..], &["--adapter", "Voodoo 2"]].concat();
    let line = refused(&data("digits_mlp_f16.safetensors"), &args);
    assert!(line.starts_with("no adapter named \"Voodoo 2\"; present: "), "{line}");
    for gpu in gpus() {
        assert!(line.contains(&adapters::label(&gpu.info)), "{line}");
    }
    // The Wayland library must not add a line of its own.
    let run = clip_with(["--adapter", "Voodoo 2"], &[("XDG_RUNTIME_DIR", None)]);
    one_line(&run);
}

#[test]
fn an_output_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("no/such/folder/out.safetensors");
    let line = one_line(&clip(["-o".as_ref(), out.as_os_str()]));
    assert!(line.starts_with(&format!("{out:?}: not written: ")), "{line}");
    let line = one_line(&clip(["-o".as_ref(), folder.path().as_os_str()]));
    assert!(line.ends_with(": not written: not a regular file"), "{line}");
    assert_eq!(listing(folder.path()), [""; 0]);
}

/// An error leaves an output of before as it was.
#[test]
fn an_error_does_not_touch_an_older_output() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors");
    save(&out, &[("old", Dtype::F32, &[1], &f32s(&[1.0]))], &[]);
    let args = ["--max-norm", "-1", "-o"].map(OsStr::new);
    one_line(&clip(args.into_iter().chain([out.as_os_str()])));
    assert_eq!(contents(&out, "").keys().collect::<Vec<_>>(), ["old"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.safetensors");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let run = clip([pipe.as_os_str(), "--scale".as_ref(), "1".as_ref(), "--max-norm".as_ref(), "1".as_ref()]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("is not a regular file"), "{}", run.stderr);
}

#[test]
fn the_recorded_scale_holds_for_the_recorded_step_only() {
    let run = clip(["--prefix", "grad/3/"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--scale is missing"), "{}", run.stderr);
}
