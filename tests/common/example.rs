//! The examples as programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built example beside this test. Cargo builds it before a run of all tests, but not before a run of this one
/// alone, when it may be missing or old.
pub fn build(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let target = profile.parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--example", name, "--manifest-path"]);
    build.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    build.arg("--target-dir").arg(target);
    match profile.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => {}
        Some(name) => {
            build.args(["--profile", name]);
        }
    }
    assert!(build.status().unwrap().success(), "the example does not build");
    profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}
