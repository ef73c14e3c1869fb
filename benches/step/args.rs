//! The command line.

use std::path::{Path, PathBuf};

use crate::measure::Rounds;

pub const USAGE: &str = "\
cargo bench --bench step -- [OPTIONS]
  --adapter NAME     the adapter whose name, driver or backend contains NAME (default: a GPU if there is one)
  --quick            models a 64th of their size and three rounds: under a minute on a software adapter
  --scale-down N     every tensor N times shorter (default: as little as the device's memory demands)
  --rounds N         measured rounds (default: 5)
  --only TEXT        only models whose name contains TEXT, and no growth series
  --python PROGRAM   where to look for PyTorch (default: python3)
  --no-pytorch       do not look
  --json FILE        everything measured, every sample included
  --svg FILE         the chart (default: target/bench.svg)
  --compare OLD.json what moved since
  --help
A binary that runs without cargo needs --bench as well: without it, it takes one tiny round.";

pub struct Args {
    pub adapter: Option<String>,
    /// `None`: as little as it takes.
    pub scale_down: Option<u64>,
    pub rounds: Rounds,
    pub only: Option<String>,
    pub python: Option<String>,
    pub json: Option<PathBuf>,
    pub svg: Option<PathBuf>,
    pub compare: Option<PathBuf>,
    /// Bytes over which the limit's kernels are chosen.
    pub calibration: u64,
    /// The largest tensor of the growth series, in elements.
    pub growth: u64,
    /// Rounds for what costs microseconds.
    pub many_rounds: usize,
    /// Nothing with more tensors than this.
    pub most_tensors: usize,
}

/// `None`: help was asked for.
pub fn parse(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<Option<Args>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut args = Args {
        adapter: None,
        scale_down: None,
        rounds: Rounds { measured: 5, warm: 1 },
        only: None,
        python: Some("python3".into()),
        json: None,
        // Cargo runs benches in the project's root; a binary that was carried elsewhere has no target folder.
        svg: Some(if Path::new("target").is_dir() { "target/bench.svg" } else { "bench.svg" }.into()),
        compare: None,
        calibration: 128 << 20,
        growth: 256 << 20,
        many_rounds: 101,
        most_tensors: usize::MAX,
    };
    let mut rounds = None;
    let mut quick = false;
    let arguments: Vec<std::ffi::OsString> = arguments.collect();
    // Cargo says so when it runs benches, and leaves it out when it runs them as tests, with options for a test harness.
    let bench = arguments.iter().any(|a| a == "--bench");
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("adapter") => args.adapter = Some(parser.value()?.string()?),
            Long("quick") => quick = true,
            Long("scale-down") => args.scale_down = Some(at_least_one(parser.value()?.parse()?)?),
            Long("rounds") => rounds = Some(at_least_one(parser.value()?.parse()?)?),
            Long("only") => args.only = Some(parser.value()?.string()?),
            Long("python") => args.python = Some(parser.value()?.string()?),
            Long("no-pytorch") => args.python = None,
            Long("json") => args.json = Some(parser.value()?.into()),
            Long("svg") => args.svg = Some(parser.value()?.into()),
            Long("compare") => args.compare = Some(parser.value()?.into()),
            Short('h') | Long("help") => return Ok(None),
            Long("bench") => {}
            _ if !bench => drop(parser.optional_value()),
            _ => return Err(arg.unexpected()),
        }
    }
    args.growth = (args.growth / args.scale_down.unwrap_or(1)).max(1 << 14);
    if quick {
        args.scale_down = args.scale_down.or(Some(64));
        args.rounds.measured = 3;
        args.calibration = 32 << 20;
        args.growth = 16 << 20;
        args.many_rounds = 5;
    }
    if let Some(rounds) = rounds {
        args.rounds.measured = rounds as usize;
    }
    if !bench {
        args.tiny();
    }
    Ok(Some(args))
}

impl Args {
    /// One round over next to nothing: whether it runs at all.
    fn tiny(&mut self) {
        self.scale_down = Some(4096);
        self.rounds = Rounds { measured: 1, warm: 0 };
        self.python = None;
        self.svg = None;
        self.calibration = 1 << 20;
        self.growth = 1 << 14;
        self.many_rounds = 1;
        self.most_tensors = 10;
    }
}

fn at_least_one(n: u64) -> Result<u64, lexopt::Error> {
    if (1..=1 << 40).contains(&n) { Ok(n) } else { Err("must be from 1 to 2^40".into()) }
}
