//! What is kept from the input to the output, and odd tensors.

use std::ffi::OsStr;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use super::common::f32s;
use super::process::{Run, clip, contents, halves, listing, metadata, save};

fn step(file: &Path, out: &Path, args: &[&str]) -> Run {
    let args = args.iter().map(OsStr::new);
    let run = clip([file.as_os_str(), "-o".as_ref(), out.as_os_str()].into_iter().chain(args));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(run.row("agreement"), "the GPU equals the CPU reference on every bit");
    run
}

/// Gradients 3 and 4 with a scale of 2 in three formats, a scalar, empty tensors, odd lengths and strange names.
fn odd(path: &Path) {
    save(
        path,
        &[
            ("w/\"q\" ü\n", Dtype::F32, &[1, 2, 1], &f32s(&[6.0, 8.0])),
            ("w/scalar", Dtype::F32, &[], &f32s(&[2.0])),
            ("w/empty", Dtype::F32, &[0], &[]),
            ("w/none", Dtype::BF16, &[4, 0, 3], &[]),
            ("w/odd", Dtype::F16, &[3], &halves(&[0x4000, 0xc400, 0x0001])),
            ("w/one", Dtype::BF16, &[1, 1], &halves(&[0x4080])),
            ("not/w/", Dtype::F32, &[1], &f32s(&[9.0])),
        ],
        &[("format", "pt"), ("who", "a \"person\""), ("a", "1"), ("b", "2")],
    );
}

#[test]
fn names_shapes_dtypes_and_metadata_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    odd(&file);
    let run = step(&file, &out, &["--scale", "2", "--max-norm", "inf", "--prefix", "w/"]);
    assert_eq!(run.row("tensors"), "6 of 7 (3 f32, 1 f16, 2 bf16), prefix w/");
    assert_eq!(run.row("elements"), "7 (20 bytes)");
    assert_eq!(run.row("wrote"), format!("{} (6 tensors)", out.display()));
    assert_eq!(listing(folder.path()), ["in.safetensors", "out.safetensors"]);
    assert_eq!(metadata(&out), metadata(&file));
    assert_eq!(metadata(&out).unwrap().len(), 4);

    let (before, mut after) = (contents(&file, "w/"), contents(&out, ""));
    let halved = |name: &str, bytes: Vec<u8>| (name.to_owned(), bytes);
    for (name, bytes) in [
        halved("w/\"q\" ü\n", f32s(&[3.0, 4.0])),
        halved("w/scalar", f32s(&[1.0])),
        // The smallest f16 halved is a tie, and goes to the even one: 0.
        halved("w/odd", halves(&[0x3c00, 0xc000, 0x0000])),
        halved("w/one", halves(&[0x4000])),
    ] {
        let content = after.get_mut(&name).unwrap();
        assert_eq!(content.bytes, bytes, "{name}");
        content.bytes.clone_from(&before[&name].bytes);
    }
    assert_eq!(after, before);
}

#[test]
fn a_file_without_metadata_gets_none() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    save(&file, &[("g", Dtype::F32, &[2], &f32s(&[3.0, 4.0]))], &[]);
    let run = step(&file, &out, &["--scale", "1", "--max-norm", "5"]);
    assert_eq!(run.row("result"), "unchanged; the norm is within the limit");
    assert_eq!((metadata(&out), contents(&out, "")), (None, contents(&file, "")));
}

/// Readers map tensors without a copy, so each starts at a multiple of its element.
#[test]
fn a_misaligned_input_makes_an_aligned_output() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    let header = concat!(
        r#"{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"#,
        r#""b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}"#
    );
    let bytes = [&halves(&[0x3c00])[..], &f32s(&[1.0])].concat();
    std::fs::write(&file, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat())
        .unwrap();
    step(&file, &out, &["--scale", "1", "--max-norm", "9"]);
    assert_eq!(contents(&out, ""), contents(&file, ""));
    let written = std::fs::read(&out).unwrap();
    let (length, header) = SafeTensors::read_metadata(&written).unwrap();
    assert_eq!((length % 8, header.info("b").unwrap().data_offsets), (0, (0, 4)));
}

#[test]
fn only_empty_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    save(&file, &[("a", Dtype::F32, &[0], &[]), ("b", Dtype::F16, &[2, 0], &[])], &[]);
    let run = step(&file, &out, &["--scale", "2", "--max-norm", "1"]);
    assert_eq!((run.row("norm before"), run.row("norm after")), ("0", "0 (measured)"));
    assert_eq!(contents(&out, ""), contents(&file, ""));
}

#[test]
fn the_output_may_be_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
    odd(&file);
    step(&file, &out, &["--scale", "2", "--max-norm", "1"]);
    step(&file, &file, &["--scale", "2", "--max-norm", "1"]);
    assert_eq!(listing(folder.path()), ["in.safetensors", "out.safetensors"]);
    // Two runs make the same file, metadata and all.
    assert!(std::fs::read(&file).unwrap() == std::fs::read(&out).unwrap());
}

#[cfg(unix)]
#[test]
fn the_output_keeps_its_permissions_and_stays_behind_its_link() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
    odd(&at("in"));
    std::fs::write(at("plain"), "").unwrap();
    step(&at("in"), &at("new"), &["--scale", "2", "--max-norm", "1"]);
    assert_eq!(mode("new"), mode("plain"));

    std::fs::set_permissions(at("plain"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("plain", at("link")).unwrap();
    step(&at("in"), &at("link"), &["--scale", "2", "--max-norm", "1"]);
    assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(mode("plain"), 0o640);
    assert_eq!(contents(&at("plain"), ""), contents(&at("new"), ""));
}

/// `-o NAME` without a folder is the current one.
#[test]
fn a_bare_name_is_written_here() {
    let folder = tempfile::tempdir().unwrap();
    odd(&folder.path().join("in"));
    let args = ["in", "--scale", "1", "--max-norm", "1", "--cpu", "-o", "out"];
    let run = super::process::clip_in(folder.path(), args);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(listing(folder.path()), ["in", "out"]);
}
