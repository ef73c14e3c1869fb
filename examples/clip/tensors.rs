//! Tensors from a safetensors file, and into one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use gradclip::Format;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

/// The limit of the safetensors library.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// One tensor of the file.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub format: Format,
    pub bytes: Vec<u8>,
}

/// The chosen tensors, in the order of the file.
pub struct Tensors {
    pub tensors: Vec<Tensor>,
    /// The text entries of the file's header (`__metadata__`).
    pub metadata: Option<HashMap<String, String>>,
    /// Tensors in the file, chosen or not.
    pub in_file: usize,
}

impl Tensor {
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64 / self.format.size()
    }
}

/// Reads the tensors whose name begins with `prefix`, and of the rest of the file no more than the header.
pub fn read(path: &Path, prefix: &str) -> Result<Tensors, String> {
    let io = |e: std::io::Error| format!("{path:?}: {e}");
    let wrong = |why: String| format!("{path:?}: {why}");
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        // Opening a pipe would wait for a writer.
        return Err(wrong(if metadata.is_dir() { "is a folder" } else { "is not a regular file" }.into()));
    }
    let size = metadata.len();
    let mut file = File::open(path).map_err(io)?;
    let mut length = [0; 8];
    if size < 8 {
        return Err(wrong(format!("has {size} bytes: truncated, or not a safetensors file")));
    }
    file.read_exact(&mut length).map_err(io)?;
    let length = u64::from_le_bytes(length);
    if length > (size - 8).min(MAX_HEADER_BYTES) {
        let why = format!(
            "has {size} bytes, but claims a header of {length}: truncated, or not a safetensors file"
        );
        return Err(wrong(why));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(io)?;
    let header = header(&text).map_err(wrong)?;

    let (start, described) = (8 + length, header.data_len() as u64);
    if size - start != described {
        let state = if size - start < described { "truncated" } else { "overlong" };
        let rest = size - start;
        return Err(wrong(format!(
            "{state}: the header describes {described} bytes of tensors, the file has {rest}"
        )));
    }
    let names = header.offset_keys();
    let mut tensors = Vec::new();
    for name in names.iter().filter(|name| name.starts_with(prefix)) {
        let Some(info) = header.info(name) else { continue };
        let format = format(info.dtype).ok_or_else(|| wrong(unusable(name, &info.dtype.to_string())))?;
        let (first, end) = info.data_offsets;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(end - first).map_err(|_| {
            wrong(format!("tensor {name:?} has {} bytes, more than fit into memory", end - first))
        })?;
        bytes.resize(end - first, 0);
        file.seek(SeekFrom::Start(start + first as u64)).map_err(io)?;
        file.read_exact(&mut bytes).map_err(io)?;
        tensors.push(Tensor { name: name.clone(), shape: info.shape.clone(), format, bytes });
    }
    if tensors.is_empty() {
        return Err(wrong(nothing(prefix, &names)));
    }
    Ok(Tensors { tensors, metadata: header.metadata().clone(), in_file: names.len() })
}

fn format(dtype: Dtype) -> Option<Format> {
    match dtype {
        Dtype::F32 => Some(Format::F32),
        Dtype::F16 => Some(Format::F16),
        Dtype::BF16 => Some(Format::Bf16),
        _ => None,
    }
}

fn dtype(format: Format) -> Dtype {
    match format {
        Format::F32 => Dtype::F32,
        Format::F16 => Dtype::F16,
        Format::Bf16 => Dtype::BF16,
    }
}

/// The header, checked: shapes, dtypes and offsets agree, and the tensors leave no gap.
fn header(text: &[u8]) -> Result<Metadata, String> {
    let broken = |e: &dyn std::fmt::Display| format!("not a safetensors file, its header is broken: {e}");
    serde_json::from_slice(text).map_err(|error| {
        // The library's own message does not say which tensor has a dtype that it does not know.
        let entries: serde_json::Map<String, serde_json::Value> = match serde_json::from_slice(text) {
            Ok(entries) => entries,
            Err(error) => return broken(&error),
        };
        let unknown = entries.iter().find_map(|(name, entry)| {
            let dtype = entry.get("dtype")?;
            let known = serde_json::from_value::<Dtype>(dtype.clone()).is_ok();
            (name != "__metadata__" && !known).then(|| unusable(name, dtype.as_str().unwrap_or("?")))
        });
        unknown.unwrap_or_else(|| broken(&error))
    })
}

fn unusable(name: &str, dtype: &str) -> String {
    format!("tensor {name:?} has dtype {dtype:?}, but only F32, F16 and BF16 can be clipped")
}

fn nothing(prefix: &str, names: &[String]) -> String {
    if names.is_empty() {
        return "holds no tensors".into();
    }
    let some: Vec<String> = names.iter().take(3).map(|n| format!("{n:?}")).collect();
    let more = if names.len() > some.len() { ", ..." } else { "" };
    format!("no tensor's name begins with {prefix:?}; it holds {}{more}", some.join(", "))
}

/// Writes the tensors with `results` for bytes. The file appears whole or not at all, and may replace the one that the
/// tensors came from.
pub fn write(path: &Path, from: &Tensors, results: &[Vec<u8>]) -> Result<(), String> {
    replace(path, from, results).map_err(|e| format!("{path:?}: not written: {e}"))
}

fn replace(path: &Path, from: &Tensors, results: &[Vec<u8>]) -> Result<(), Box<dyn std::error::Error>> {
    // A link keeps pointing at the file that it stands for.
    let path: PathBuf = match fs::canonicalize(path) {
        Ok(file) => file,
        Err(_) if path.is_symlink() => return Err("is a link to nothing".into()),
        Err(_) => path.into(),
    };
    let existing = fs::metadata(&path).ok();
    if existing.as_ref().is_some_and(|m| !m.is_file()) {
        return Err("not a regular file".into());
    }
    // Wide elements first, as the format asks for, so that every tensor is aligned to its element.
    let mut order: Vec<usize> = (0..results.len()).collect();
    order.sort_by_key(|&t| std::cmp::Reverse(from.tensors[t].format.size()));
    let mut end = 0;
    let infos = order.iter().map(|&t| {
        let tensor = &from.tensors[t];
        let first = end;
        end += results[t].len();
        let info = TensorInfo {
            dtype: dtype(tensor.format),
            shape: tensor.shape.clone(),
            data_offsets: (first, end),
        };
        (tensor.name.clone(), info)
    });
    let header = Metadata::new(from.metadata.clone(), infos.collect())?;
    // By way of a sorted map, so that equal tensors make equal files.
    let mut header = serde_json::to_string(&serde_json::to_value(&header)?)?;
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));

    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = temporary(folder)?;
    if let Some(existing) = existing {
        temporary.as_file().set_permissions(existing.permissions())?;
    }
    let mut writer = BufWriter::new(temporary.as_file());
    writer.write_all(&(header.len() as u64).to_le_bytes())?;
    writer.write_all(header.as_bytes())?;
    for t in order {
        writer.write_all(&results[t])?;
    }
    writer.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    temporary.persist(&path).map_err(|e| e.error)?;
    Ok(())
}

/// A file that vanishes unless it is persisted, readable by whom the user's umask says.
fn temporary(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.prefix(".clip-").suffix(".tmp").tempfile_in(folder)
}
