//! The command line.

use std::path::{Path, PathBuf};

use gradclip::{ClipNorm, LossScale};

pub const USAGE: &str = "usage: clip FILE.safetensors --scale S --max-norm M [--eps E] [--prefix P] \
    [-o OUT.safetensors] [--adapter NAME] [--cpu]";

pub const HELP: &str = "\
usage: clip FILE.safetensors --scale S --max-norm M [--eps E] [--prefix P] [-o OUT.safetensors] [--adapter NAME] [--cpu]

One step over the gradients of a safetensors file: divide by the loss scale, look for inf and NaN, measure one L2 norm
over all tensors, scale them so that it is at most M. Without arguments: recorded gradients of PyTorch.

  --scale S      the loss scale that backward used, above 0
  --max-norm M   the limit of the norm of the unscaled gradients; 0 or more, inf for none
  --eps E        added to the norm in the denominator (1e-6)
  --prefix P     only tensors whose name begins with P (all)
  -o, --out OUT  write the tensors there, under their full names
  --adapter NAME a part of the adapter's name
  --cpu          the CPU reference only

Exit status: 0 done, 1 the GPU differs from the CPU reference, 2 an error, 3 the step is skipped (inf, NaN or overflow)
and the tensors are as they were.
";

/// Step 1 of a recorded PyTorch run of a small MLP in f16: its norm is above the limit, so it is unscaled and clipped.
/// Scale and limit are those of `digits_mlp_f16.json`. The published package has this recording and no other.
const RECORDED: (&str, &str, &str, &str) = ("digits_mlp_f16.safetensors", "grad/1/", "256", "0.14");

pub struct Arguments {
    pub file: PathBuf,
    pub scale: LossScale,
    pub clip: ClipNorm,
    pub prefix: String,
    pub out: Option<PathBuf>,
    pub adapter: Option<String>,
    pub cpu: bool,
}

#[derive(Default)]
struct Given {
    file: Option<PathBuf>,
    scale: Option<String>,
    max_norm: Option<String>,
    eps: Option<String>,
    prefix: Option<String>,
    out: Option<PathBuf>,
    adapter: Option<String>,
    cpu: bool,
}

/// What was asked for; `None`: the usage.
pub fn parse() -> Result<Option<Arguments>, String> {
    match given() {
        Ok(None) => Ok(None),
        Ok(Some(given)) => given.check().map(Some),
        Err(error) => Err(format!("{error}; {USAGE}")),
    }
}

fn given() -> Result<Option<Given>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut given = Given::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Value(file) if given.file.is_none() => given.file = Some(file.into()),
            Long("scale") => given.scale = Some(parser.value()?.string()?),
            Long("max-norm") => given.max_norm = Some(parser.value()?.string()?),
            Long("eps") => given.eps = Some(parser.value()?.string()?),
            Long("prefix") => given.prefix = Some(parser.value()?.string()?),
            Short('o') | Long("out") => given.out = Some(parser.value()?.into()),
            Long("adapter") => given.adapter = Some(parser.value()?.string()?),
            Long("cpu") => given.cpu = true,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(given))
}

impl Given {
    fn check(self) -> Result<Arguments, String> {
        let recorded = self.file.is_none();
        let (name, prefix, scale, max_norm) = RECORDED;
        // The recorded step's own: they hold for no other.
        let known = recorded && self.prefix.is_none();
        let or_recorded = |value: Option<String>, option: &str, default: &str| match value {
            Some(text) => Ok(text),
            None if known => Ok(default.to_owned()),
            None => Err(format!("{option} is missing; {USAGE}")),
        };
        let scale = number("--scale", &or_recorded(self.scale, "--scale", scale)?)?;
        let max_norm = number("--max-norm", &or_recorded(self.max_norm, "--max-norm", max_norm)?)?;
        let mut clip = ClipNorm::new(max_norm).map_err(|e| e.to_string())?;
        if let Some(eps) = self.eps {
            clip = clip.with_eps(number("--eps", &eps)?).map_err(|e| e.to_string())?;
        }
        if self.cpu && self.adapter.is_some() {
            return Err("--cpu and --adapter exclude each other".into());
        }
        Ok(Arguments {
            file: self.file.unwrap_or_else(|| data().join(name)),
            scale: LossScale::new(scale).map_err(|e| e.to_string())?,
            clip,
            prefix: self.prefix.unwrap_or_else(|| if recorded { prefix.into() } else { String::new() }),
            out: self.out,
            adapter: self.adapter,
            cpu: self.cpu,
        })
    }
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// An f32. What f32 would turn into 0 or infinity is refused: as a limit, the one erases every gradient and the other
/// switches clipping off.
fn number(option: &str, text: &str) -> Result<f32, String> {
    let parsed = text.parse::<f32>().ok().zip(text.parse::<f64>().ok());
    let (narrow, wide) = parsed.ok_or_else(|| format!("{option} {text:?} is not a number"))?;
    if narrow.is_infinite() != wide.is_infinite() || (narrow == 0.0) != (wide == 0.0) {
        return Err(format!("{option} {text} is outside the range of f32"));
    }
    Ok(narrow)
}
