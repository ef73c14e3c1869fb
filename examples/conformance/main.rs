//! Every case of `steps.json`, `clips.json` and `scaler.json` on every adapter, bit for bit.
//!
//! `conformance [--adapter all|NAME] [--steps FILE.json] [--scaler FILE.json] [--environment] [--json OUT]`
//!
//! `--steps` reads steps of any kind in place of those of the first two files.
//!
//! With `--environment`, and for each adapter on which something failed, it prints the block that a bug report needs.

#[allow(dead_code, reason = "shared with tests and benches")]
mod adapters;
mod case_file;
mod cases;
mod limit;
#[allow(dead_code, reason = "shared with tests")]
mod runner;
mod scaler;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: conformance [--adapter all|NAME] [--steps FILE.json] [--scaler FILE.json] [--environment] \
    [--json OUT]";

struct Args {
    adapter: String,
    steps: Option<PathBuf>,
    scaler: Option<PathBuf>,
    environment: bool,
    json: Option<PathBuf>,
}

fn arguments() -> Result<Option<Args>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut args = Args { adapter: "all".into(), steps: None, scaler: None, environment: false, json: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("adapter") => args.adapter = parser.value()?.string()?,
            Long("steps") => args.steps = Some(parser.value()?.into()),
            Long("scaler") => args.scaler = Some(parser.value()?.into()),
            Long("environment") => args.environment = true,
            Long("json") => args.json = Some(parser.value()?.into()),
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(args))
}

fn main() -> ExitCode {
    let args = match arguments() {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("conformance: {error}; {USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(failed) => ExitCode::from(u8::from(failed > 0)),
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns how many checks failed.
fn run(args: &Args) -> Result<usize, String> {
    let cases = match &args.steps {
        Some(path) => cases::read(path)?,
        None => cases::built_in()?,
    };
    let scaler_cases = match &args.scaler {
        Some(path) => scaler::read(path)?,
        None => scaler::parse(scaler::BUILT_IN)?,
    };
    let (mut passed, mut failed) = (0, 0);
    let (mut rows, mut blocks) = (Vec::new(), Vec::new());
    for adapter in adapters::named(&args.adapter)? {
        let label = adapters::label(&adapter.get_info());
        let (tally, environment) = match adapters::open(&adapter) {
            Ok(gpu) => (
                runner::run(&gpu.context, &cases).and(scaler::run(&gpu.context, &scaler_cases)),
                Some(gpu.context.environment().to_string()),
            ),
            Err(error) => (runner::Tally { checks: 1, mismatches: 1, first: Some(error) }, None),
        };
        println!(
            "{label}: {} cases, {} checks, {} mismatches",
            cases.len() + scaler_cases.len(),
            tally.checks,
            tally.mismatches
        );
        if let Some(first) = &tally.first {
            println!("  first: {first}");
        }
        passed += tally.checks - tally.mismatches;
        failed += tally.mismatches;
        rows.push(serde_json::json!({
            "adapter": label,
            "cases": cases.len() + scaler_cases.len(),
            "checks": tally.checks,
            "mismatches": tally.mismatches,
            "first": tally.first,
            "environment": environment,
        }));
        if args.environment || tally.mismatches > 0 {
            blocks.extend(environment);
        }
    }
    for block in &blocks {
        println!("\n{block}");
    }
    if !blocks.is_empty() {
        println!();
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&rows).map_err(|e| e.to_string())?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed)
}
