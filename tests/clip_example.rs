//! The clip example as a person runs it: a process, its exit status, what it prints and what it writes.

mod common;

#[path = "clip_example/agreement.rs"]
mod agreement;
#[path = "clip_example/errors.rs"]
mod errors;
#[path = "clip_example/files.rs"]
mod files;
#[path = "clip_example/process.rs"]
mod process;
#[path = "clip_example/steps.rs"]
mod steps;
