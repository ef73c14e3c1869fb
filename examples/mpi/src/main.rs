//! One optimizer step over gradients that lie on the ranks of an MPI program, each on a device of its own: the same bits as
//! one process that has everything. README.md says how to run it.

#[allow(dead_code, reason = "shared with the conformance runner")]
#[path = "../../conformance/adapters.rs"]
mod adapters;
mod checks;
mod cut;
mod data;
mod exchange;
mod part;
mod ranks;
mod timing;

use std::process::ExitCode;

use gradclip::wgpu;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use ranks::Ranks;

const HELP: &str = "\
Clips gradients that lie on several ranks by one norm, and compares every bit with one process.

usage: mpirun -n N gradclip-mpi-example [OPTIONS]

  --adapter NAME  use the adapters whose description contains NAME, or \"all\": the first for rank 0, the second for
                  rank 1, and round again (default: the best one for every rank)
  -h, --help      print this

Exit status: 0; 1 if a check failed; 2 for bad arguments, no adapter and other errors.";

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else {
        eprintln!("MPI is initialized already");
        return ExitCode::from(2);
    };
    let ranks = Ranks::new(universe.world());
    // A rank that cannot go on must take the others along: they wait for it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        SimpleCommunicator::world().abort(2);
    }));
    match run(&ranks) {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            // wgpu's errors have several lines.
            let error = error.to_string();
            let rank = ranks.rank;
            eprintln!("rank {rank}: {}", error.split_whitespace().collect::<Vec<_>>().join(" "));
            ranks.world.abort(2)
        }
    }
}

fn run(ranks: &Ranks) -> Fallible<bool> {
    let Some(adapter) = arguments()? else {
        if ranks.rank == 0 {
            println!("{HELP}");
        }
        return Ok(true);
    };
    let gpu = adapters::open(&choose(adapter.as_deref(), ranks.rank)?)?;
    let mut labels = ranks.gather_text(&adapters::label(&gpu.info))?;
    labels.sort_unstable();
    let adapters: Vec<String> =
        labels.chunk_by(|a, b| a == b).map(|same| format!("{} on {}", same.len(), same[0])).collect();
    let adapters = adapters.join(", ");
    if ranks.rank == 0 {
        println!("ranks: {adapters}");
    }
    let good = checks::run(ranks, &gpu.context)?;
    timing::print(ranks, &gpu.context, &adapters)?;
    Ok(good)
}

/// The adapters that were asked for; `None`: help was.
fn arguments() -> Fallible<Option<Option<String>>> {
    use lexopt::prelude::*;
    let mut adapter = None;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("adapter") => adapter = Some(parser.value()?.string()?),
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(argument.unexpected().into()),
        }
    }
    Ok(Some(adapter))
}

/// A real GPU before a software one, Vulkan, Metal or DX12 before GL, and SwiftShader, the slowest, after lavapipe.
fn choose(name: Option<&str>, rank: usize) -> Fallible<wgpu::Adapter> {
    let mut adapters = adapters::named(name.unwrap_or("all"))?;
    adapters.sort_by_key(|adapter| {
        let info = adapter.get_info();
        let software = info.device_type == wgpu::DeviceType::Cpu;
        (software, info.backend == wgpu::Backend::Gl, info.name.contains("SwiftShader"))
    });
    let turn = if name.is_some() { rank % adapters.len() } else { 0 };
    adapters.into_iter().nth(turn).ok_or_else(|| adapters::NO_ADAPTER.into())
}
