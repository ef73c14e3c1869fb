//! Runs the example and takes safetensors files apart.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use super::common::example::build;

/// What a run left behind.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The values of a row, without its label.
    pub fn rows(&self, label: &str) -> Vec<&str> {
        let rows = self.stdout.lines().filter_map(|line| line.strip_prefix(label));
        rows.filter(|rest| rest.starts_with(' ')).map(str::trim).collect()
    }

    /// The one row of that label.
    pub fn row(&self, label: &str) -> &str {
        match self.rows(label)[..] {
            [row] => row,
            ref rows => panic!("{label}: {rows:?} in {self:?}"),
        }
    }
}

/// Runs the example with these arguments.
pub fn clip<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    finish(Command::new(example()).args(args))
}

/// Runs the example with these arguments in a folder.
pub fn clip_in<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Run {
    finish(Command::new(example()).args(args).current_dir(folder))
}

/// Runs the example with these arguments, and environment variables set or (`None`) unset.
pub fn clip_with<S: AsRef<OsStr>>(
    args: impl IntoIterator<Item = S>,
    variables: &[(&str, Option<&str>)],
) -> Run {
    let mut command = Command::new(example());
    command.args(args);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    finish(&mut command)
}

fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn example() -> &'static Path {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLE.get_or_init(|| build("clip"))
}

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A tensor as the safetensors library sees it, not the example.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// All tensors of a file whose name begins with `prefix`.
pub fn contents(path: &Path, prefix: &str) -> BTreeMap<String, Content> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, view)| {
            let content =
                Content { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
            (name.to_owned(), content)
        })
        .collect()
}

/// The text entries of a file's header.
pub fn metadata(path: &Path) -> Option<HashMap<String, String>> {
    let bytes = std::fs::read(path).unwrap();
    SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone()
}

/// Writes a file with the safetensors library.
pub fn save(path: &Path, tensors: &[(&str, Dtype, &[usize], &[u8])], metadata: &[(&str, &str)]) {
    let views = tensors.iter().map(|&(name, dtype, shape, bytes)| {
        (name.to_owned(), TensorView::new(dtype, shape.to_vec(), bytes).unwrap())
    });
    let metadata: HashMap<String, String> =
        metadata.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    let metadata = (!metadata.is_empty()).then_some(metadata);
    std::fs::write(path, safetensors::serialize(views, metadata).unwrap()).unwrap();
}

/// Little-endian halves.
pub fn halves(bits: &[u16]) -> Vec<u8> {
    bits.iter().flat_map(|b| b.to_le_bytes()).collect()
}

/// The names of all files in a folder.
pub fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
