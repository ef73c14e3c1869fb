//! PyTorch, if there is one, in a process of its own that runs a step whenever it is asked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::shapes::Shape;

const SCRIPT: &str = include_str!("../peers/pytorch.py");

/// What ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub torch: String,
    pub device: String,
    pub threads: u32,
}

pub struct PyTorch {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub version: Version,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Ready(Version),
    Absent { error: String },
}

impl PyTorch {
    /// Starts it on "cpu" or "cuda"; `Err` says why there is none.
    pub fn start(python: &str, device: &str) -> Result<Self, String> {
        let mut child = Command::new(python)
            .args(["-c", SCRIPT, device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{python}: {e}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{python}: no pipes"));
        };
        let mut this = Self {
            child,
            input: Some(input),
            output: BufReader::new(output),
            version: Version { torch: String::new(), device: String::new(), threads: 0 },
        };
        let answer = this.answer()?;
        match serde_json::from_str(&answer).map_err(|e| format!("{python} answered \"{answer}\": {e}"))? {
            Answer::Ready(version) => this.version = version,
            Answer::Absent { error } => return Err(format!("{python}: {error}")),
        }
        Ok(this)
    }

    /// Makes gradients of this shape.
    pub fn make(&mut self, shape: &Shape) -> Result<(), String> {
        let lengths = serde_json::json!(shape.tensors).to_string();
        match self.ask(&lengths)?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("PyTorch: \"{other}\"")),
        }
    }

    /// One step.
    pub fn run(&mut self) -> Result<Duration, String> {
        let answer = self.ask("go")?;
        let milliseconds: f64 = answer.parse().map_err(|e| format!("PyTorch: \"{answer}\": {e}"))?;
        Ok(Duration::from_secs_f64(milliseconds * 1e-3))
    }

    fn ask(&mut self, line: &str) -> Result<String, String> {
        let input = self.input.as_mut().ok_or("PyTorch: its input is closed")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|e| format!("PyTorch: {e}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(|e| format!("PyTorch: {e}"))?;
        if answer.is_empty() {
            return Err("PyTorch stopped without an answer".into());
        }
        Ok(answer.trim().to_owned())
    }
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        // Its input ends, and with it the process.
        self.input = None;
        _ = self.child.wait();
    }
}
