//! The command line.

use std::path::PathBuf;

use crate::clipping::Method;
use crate::rule::Rule;

pub const HELP: &str = "\
Trains a small network on 8x8 digits with f16 gradients, a dynamic loss scale and two optimizers, on the GPU.

usage: train [OPTIONS]

  --optimizer sgd|adamw  what trains the network (default sgd)
  --steps N              optimizer steps, each of two microbatches (default 600)
  --seed N               for the weights and the order of the images (default 1)
  --adapter NAME         use an adapter whose description contains NAME
  --log FILE             one JSON line a step (default target/train.jsonl)
  --svg FILE             the chart (default target/train.svg)

Mistakes, each trained after the correct run from the same weights on the same batches; a table compares them:
  --wrong-order          clip before unscaling: the limit holds for gradients times the loss scale
                         (AdamW hides it: its update does not depend on the size of the gradients)
  --per-tensor           a norm for each tensor instead of one for the optimizer
  --per-microbatch       clip after each microbatch instead of once for their sum
  --compare              all three

  --baseline             print the first steps beside an f64 computation on the CPU, and do nothing else
  -h, --help             print this

The last line is `accuracy A, skipped S of N`, for the correct run on the test set. Exit status: 0; 1 if the accuracy is
not above 0.95, no step was skipped, or the baseline differs; 2 for bad arguments, no adapter and other errors.";

pub struct Args {
    pub rule: Rule,
    pub steps: usize,
    pub seed: u64,
    pub adapter: Option<String>,
    pub log: PathBuf,
    pub svg: PathBuf,
    pub mistakes: Vec<Method>,
    pub baseline: bool,
}

/// `None`: help was asked for.
pub fn parse() -> Result<Option<Args>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut args = Args {
        rule: Rule::Sgd,
        steps: 600,
        seed: 1,
        adapter: None,
        log: "target/train.jsonl".into(),
        svg: "target/train.svg".into(),
        mistakes: Vec::new(),
        baseline: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("optimizer") => {
                args.rule = parser.value()?.parse_with(|name| match name {
                    "sgd" => Ok(Rule::Sgd),
                    "adamw" => Ok(Rule::AdamW),
                    _ => Err("must be sgd or adamw"),
                })?;
            }
            Long("steps") => {
                args.steps = parser.value()?.parse_with(|text| match text.parse() {
                    Ok(steps @ 1..=1_000_000) => Ok(steps),
                    _ => Err("steps must be from 1 to 1000000"),
                })?;
            }
            Long("seed") => args.seed = parser.value()?.parse()?,
            Long("adapter") => args.adapter = Some(parser.value()?.string()?),
            Long("log") => args.log = parser.value()?.into(),
            Long("svg") => args.svg = parser.value()?.into(),
            Long("wrong-order") => add(&mut args.mistakes, &[Method::WrongOrder]),
            Long("per-tensor") => add(&mut args.mistakes, &[Method::PerTensor]),
            Long("per-microbatch") => add(&mut args.mistakes, &[Method::PerMicrobatch]),
            Long("compare") => {
                add(&mut args.mistakes, &[Method::WrongOrder, Method::PerTensor, Method::PerMicrobatch]);
            }
            Long("baseline") => args.baseline = true,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(args))
}

fn add(mistakes: &mut Vec<Method>, more: &[Method]) {
    for method in more {
        if !mistakes.contains(method) {
            mistakes.push(*method);
        }
    }
}
