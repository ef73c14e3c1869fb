//! A progress bar, where a person looks.

use std::io::{IsTerminal as _, Write as _};

use gradclip::UpdateReport;

const WIDTH: usize = 30;

pub struct Bar {
    name: &'static str,
    steps: usize,
    shown: bool,
}

impl Bar {
    pub fn new(name: &'static str, steps: usize) -> Self {
        Self { name, steps, shown: std::io::stderr().is_terminal() }
    }

    pub fn show(&mut self, report: &UpdateReport) {
        if !self.shown {
            return;
        }
        let done = report.update as usize + 1;
        let filled = done * WIDTH / self.steps;
        // A bar that cannot be written is not worth failing for.
        _ = write!(
            std::io::stderr(),
            "\r{:<14} [{}{}] {done}/{} scale 2^{:<5.1} skipped {} ",
            self.name,
            "#".repeat(filled),
            "-".repeat(WIDTH - filled),
            self.steps,
            report.scaler.scale.log2(),
            report.scaler.skipped
        );
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown {
            eprintln!();
        }
    }
}
