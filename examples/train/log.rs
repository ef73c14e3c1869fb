//! One JSON line a step.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use gradclip::StepReport;
use serde_json::{Value, json};

use crate::clipping::Method;
use crate::training::Row;

pub struct Log {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Log {
    pub fn create(path: &Path) -> Result<Self, String> {
        make_folder(path)?;
        let file = File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self { path: path.into(), out: BufWriter::new(file) })
    }

    pub fn row(&mut self, method: Method, row: &Row) -> Result<(), String> {
        let line = line(method, row);
        writeln!(self.out, "{line}").map_err(|e| format!("{}: {e}", self.path.display()))
    }

    pub fn finish(mut self) -> Result<(), String> {
        self.out.flush().map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

/// The folder of a file that is about to be written.
pub fn make_folder(path: &Path) -> Result<(), String> {
    match path.parent() {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display())),
        None => Ok(()),
    }
}

fn line(method: Method, row: &Row) -> Value {
    let report = &row.report;
    json!({
        "run": method.name(),
        "step": report.update,
        "loss": row.loss,
        "training_accuracy": row.training_accuracy,
        "test_accuracy": row.test_accuracy,
        "scale": row.scale(),
        "next_scale": report.scaler.scale,
        "skipped": row.skipped(),
        "skipped_so_far": report.scaler.skipped,
        "consecutive_skipped": report.scaler.consecutive_skipped,
        "clip_rate": report.clip_rate,
        "lost_reports": report.lost,
        "sets": report.steps.iter().map(set).collect::<Vec<_>>(),
    })
}

fn set(step: &StepReport) -> Value {
    let report = &step.report;
    let nonfinite = |bad: &gradclip::TensorReport| {
        let counts = bad.nonfinite;
        json!({
            "tensor": bad.name,
            "nan": counts.nan,
            "pos_inf": counts.pos_inf,
            "neg_inf": counts.neg_inf,
            "first": counts.first,
        })
    };
    json!({
        "set": step.set,
        "microbatches": step.microbatches,
        "norm": report.total_norm,
        "coefficient": report.coefficient,
        "factor": report.factor,
        "norm_after": report.total_norm.zip(report.coefficient).map(|(norm, coefficient)| norm * coefficient),
        "clipped": report.clipped,
        "skipped": report.skipped,
        "found_inf": report.found_inf,
        "overflow": report.overflow,
        "nonfinite": report.bad_tensors().map(nonfinite).collect::<Vec<_>>(),
    })
}
