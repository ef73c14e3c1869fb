//! What the exchange costs beside the rest of a step. Nothing is asserted here.

use std::time::Instant;

use gradclip::{Context, Ledger};
use mpi::traits::*;

use crate::cut::Cuts;
use crate::part::Part;
use crate::ranks::Ranks;
use crate::{Fallible, data, exchange};

const EXCHANGES: usize = 301;
const STEPS: usize = 21;

/// Prints medians, each that of the slowest rank, after a barrier each time.
pub fn print(ranks: &Ranks, gpu: &Context, adapters: &str) -> Fallible<()> {
    let steps = data::recorded("gpt_amp_f16")?;
    let step = steps.last().ok_or("no step")?;
    let cuts = Cuts::even(step.lens(), ranks.size);
    let gradients = step.part(&cuts, ranks.rank);
    let part = Part::new(gpu, &gradients)?;
    let measure = || part.submit(|encoder| part.set.record_ledger(encoder, step.scale, step.clip));

    measure()?;
    let ledger = part.set.read_ledger()?;
    let exchange = median(
        ranks,
        EXCHANGES,
        || Ok(()),
        || {
            exchange::merged(&ranks.world, &ledger)?;
            Ok(())
        },
    )?;
    let measured_and_waited = || {
        measure()?;
        part.wait()
    };
    let readback = median(ranks, STEPS, measured_and_waited, || {
        part.set.read_ledger()?;
        Ok(())
    })?;
    let ready = || {
        part.upload(&gradients);
        part.submit(|_| ());
        part.wait()
    };
    let sharded = median(ranks, STEPS, ready, || {
        measure()?;
        let merged = exchange::merged(&ranks.world, &part.set.read_ledger()?)?;
        part.submit(|encoder| part.set.record_merged(encoder, &merged))?;
        part.wait()
    })?;
    let alone = median(ranks, STEPS, ready, || {
        part.submit(|encoder| part.set.record(encoder, step.scale, step.clip))?;
        part.wait()
    })?;
    if ranks.rank == 0 {
        println!(
            "time    {}, medians: exchange of {} words {exchange:.4} ms, readback of the ledger {readback:.3} ms, \
             whole sharded step {sharded:.3} ms, the same part without the others {alone:.3} ms; {} f32 gradients over \
             all ranks; {adapters}",
            ranks.count(),
            Ledger::WORDS,
            step.lens().sum::<usize>() / 4,
        );
    }
    Ok(())
}

/// In milliseconds.
fn median(
    ranks: &Ranks,
    times: usize,
    mut before: impl FnMut() -> Fallible<()>,
    mut work: impl FnMut() -> Fallible<()>,
) -> Fallible<f64> {
    let mut samples = Vec::with_capacity(times);
    for _ in 0..times {
        before()?;
        ranks.world.barrier();
        let start = Instant::now();
        work()?;
        samples.push(start.elapsed().as_secs_f64() * 1e3);
    }
    samples.sort_unstable_by(f64::total_cmp);
    Ok(ranks.largest(samples[times / 2]))
}
