//! PyTorch, if there is one, in a process of its own that runs a step whenever it is asked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::shapes::Shape;

/// It takes seconds to load; what takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);
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
    input: ChildStdin,
    /// Its lines, from a thread of its own, so that waiting for one can end.
    output: Receiver<String>,
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
        let (send, receive) = sync_channel(16);
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.map(|line| send.send(line)).take_while(Result::is_ok).count()
        });
        let mut this = Self {
            child,
            input,
            output: receive,
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
        let milliseconds = answer.parse().ok().filter(|ms: &f64| *ms > 0.0);
        let time = milliseconds.and_then(|ms| Duration::try_from_secs_f64(ms * 1e-3).ok());
        time.ok_or_else(|| format!("PyTorch answered \"{answer}\" in place of milliseconds"))
    }

    fn ask(&mut self, line: &str) -> Result<String, String> {
        writeln!(self.input, "{line}")
            .and_then(|()| self.input.flush())
            .map_err(|e| format!("PyTorch: {e}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        match self.output.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line.trim().to_owned()),
            Err(_) => Err("PyTorch stopped, or takes too long".into()),
        }
    }
}

impl Drop for PyTorch {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
