//! What a check needs of MPI beside the exchange itself: bytes and words to rank 0, and one opinion for all.

use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::Fallible;

pub struct Ranks {
    pub world: SimpleCommunicator,
    pub rank: usize,
    pub size: usize,
}

impl Ranks {
    pub fn new(world: SimpleCommunicator) -> Self {
        Self { rank: world.rank() as usize, size: world.size() as usize, world }
    }

    /// How many there are, in words.
    pub fn count(&self) -> String {
        format!("{} rank{}", self.size, if self.size == 1 { "" } else { "s" })
    }

    /// The bytes of every rank, on rank 0; elsewhere nothing.
    pub fn gather(&self, own: &[u8]) -> Fallible<Vec<Vec<u8>>> {
        let root = self.world.process_at_rank(0);
        let count = i32::try_from(own.len())?;
        // Rust's pointer to no bytes may be 1, which is Open MPI's MPI_IN_PLACE; here, and where they arrive.
        let own = if own.is_empty() { &[0][..0] } else { own };
        if self.rank != 0 {
            root.gather_into(&count);
            root.gather_varcount_into(own);
            return Ok(Vec::new());
        }
        let mut counts = vec![0i32; self.size];
        root.gather_into_root(&count, &mut counts[..]);
        let mut starts = Vec::new();
        let mut end = 0i32;
        for count in &counts {
            starts.push(end);
            end = end.checked_add(*count).ok_or("more than 2^31 bytes to gather")?;
        }
        let mut all = vec![0u8; end as usize + 1];
        root.gather_varcount_into_root(own, &mut PartitionMut::new(&mut all[..], &counts[..], &starts[..]));
        let each = starts.iter().zip(&counts);
        Ok(each.map(|(&start, &count)| all[start as usize..][..count as usize].to_vec()).collect())
    }

    /// The text of every rank, on rank 0; elsewhere nothing.
    pub fn gather_text(&self, own: &str) -> Fallible<Vec<String>> {
        self.gather(own.as_bytes())?.into_iter().map(|bytes| Ok(String::from_utf8(bytes)?)).collect()
    }

    /// The largest of what the ranks have.
    pub fn largest(&self, own: f64) -> f64 {
        let mut largest = 0.0;
        self.world.all_reduce_into(&own, &mut largest, SystemOperation::max());
        largest
    }

    /// Prints on rank 0 how a check went: with `summary` if no rank complains, else the first complaint of each that does.
    /// The answer is the same on every rank.
    pub fn verdict(&self, name: &str, summary: &str, complaints: &[String]) -> Fallible<bool> {
        let first = complaints.first().map_or("", String::as_str);
        let all = self.gather_text(first)?;
        let mut failed = all.iter().enumerate().filter(|(_, complaint)| !complaint.is_empty()).peekable();
        if self.rank == 0 && failed.peek().is_none() {
            println!("ok      {name}: {summary}");
        }
        for (rank, complaint) in failed {
            println!("FAILED  {name}: rank {rank}: {complaint}");
        }
        let mut fewest = 0u8;
        self.world.all_reduce_into(&u8::from(complaints.is_empty()), &mut fewest, SystemOperation::min());
        Ok(fewest == 1)
    }
}
