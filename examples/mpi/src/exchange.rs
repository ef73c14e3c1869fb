//! The one thing that the ranks of a step tell each other.

use gradclip::{Error, Ledger};
use mpi::collective::SystemOperation;
use mpi::traits::*;

/// The ledger of all ranks from that of each: one sum of 44 numbers, the same on every rank. What does not add up (other
/// scales, other norms, a damaged word, a rank too few) is an error, on every rank the same.
pub fn merged(world: &impl Communicator, own: &Ledger) -> Result<Ledger, Error> {
    sum(world, own)?.complete(world.size().unsigned_abs().into())
}

/// Put NCCL, Gloo or a socket here: anything that adds unsigned 64-bit integers and lets them wrap.
pub fn sum(world: &impl Communicator, own: &Ledger) -> Result<Ledger, Error> {
    let mut sum = [0u64; Ledger::WORDS];
    world.all_reduce_into(&own.to_words()[..], &mut sum[..], SystemOperation::sum());
    Ledger::from_words(&sum)
}
