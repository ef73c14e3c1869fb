//! How far a step is from the memory limit, and how it compares with what people do instead, on one adapter, measured in
//! turns. `cargo bench --bench step -- --help`

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../../examples/conformance/adapters.rs"]
mod adapters;
mod args;
mod chart;
mod clock;
mod compare;
mod gradients;
mod kernels;
mod limit;
mod measure;
mod numbers;
mod per_tensor;
mod pytorch;
mod record;
mod row;
mod run;
mod sets;
mod shapes;
mod table;
mod three_pass;
mod variant;

use std::path::Path;
use std::process::ExitCode;

use args::Args;
use record::Record;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("step: {error}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("step: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    // Before minutes of measuring, not after.
    let old: Option<Record> = args.compare.as_deref().map(read).transpose()?;
    for path in args.json.iter().chain(&args.svg) {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let record = run::run(args)?;
    println!("{}", table::markdown(&record));
    if let Some(old) = &old {
        println!("{}", compare::compare(old, &record));
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())?;
        write(path, &(text + "\n"))?;
    }
    if let Some(path) = &args.svg {
        write(path, &chart::svg(&record)?)?;
        println!("chart: {}", path.display());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Record, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
