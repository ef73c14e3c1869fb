//! Which bytes of which tensor a rank has.

use std::ops::Range;

/// Numbers that are the same on every rank for the same seed (Steele, Lea and Flood's SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }
}

/// For each tensor, the bytes of each rank.
#[derive(Debug, Clone)]
pub struct Cuts {
    ranks: usize,
    tensors: Vec<Vec<Range<usize>>>,
}

impl Cuts {
    /// The same share for every rank, as near as whole words allow.
    pub fn even(lens: impl IntoIterator<Item = usize>, ranks: usize) -> Self {
        let tensors = lens.into_iter().map(|len| cut(len, &vec![1; ranks])).collect();
        Self { ranks, tensors }
    }

    /// Shares of any size; in every tensor some ranks have none. With four ranks or more, one has nothing of any tensor.
    pub fn uneven(lens: impl IntoIterator<Item = usize>, ranks: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let idle = (ranks >= 4).then(|| random.below(ranks as u64) as usize);
        let tensors = lens
            .into_iter()
            .map(|len| {
                let mut shares: Vec<u64> = (0..ranks)
                    .map(|rank| match random.below(4) {
                        0 => 0,
                        _ if Some(rank) == idle => 0,
                        _ => 1 + random.below(16),
                    })
                    .collect();
                if shares.iter().all(|&share| share == 0) {
                    let busy = (0..ranks).find(|&rank| Some(rank) != idle).unwrap_or(0);
                    shares[busy] = 1;
                }
                cut(len, &shares)
            })
            .collect();
        Self { ranks, tensors }
    }

    /// The bytes that `rank` has of each tensor.
    pub fn of(&self, rank: usize) -> impl Iterator<Item = Range<usize>> {
        self.tensors.iter().map(move |ranges| ranges[rank].clone())
    }

    /// The tensors again, from what each rank has of all of them, back to back. `None` if a rank has too much or too little.
    pub fn join(&self, parts: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let mut rests: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        if rests.len() != self.ranks {
            return None;
        }
        let mut joined = Vec::new();
        for ranges in &self.tensors {
            let mut tensor = Vec::new();
            for (rest, range) in rests.iter_mut().zip(ranges) {
                let (own, after) = rest.split_at_checked(range.len())?;
                tensor.extend_from_slice(own);
                *rest = after;
            }
            joined.push(tensor);
        }
        rests.iter().all(|rest| rest.is_empty()).then_some(joined)
    }
}

/// Cuts `len` bytes in proportion to `shares`, not all zero. A tensor of gradclip's starts at a 32-bit word, so every cut
/// but the end does.
fn cut(len: usize, shares: &[u64]) -> Vec<Range<usize>> {
    let words = len.div_ceil(4) as u64;
    let total: u64 = shares.iter().sum();
    let mut before = 0;
    let mut start = 0;
    shares
        .iter()
        .map(|share| {
            before += share;
            let end = len.min(4 * (words * before / total) as usize);
            std::mem::replace(&mut start, end)..end
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cuts: &Cuts, lens: &[usize]) {
        let mut counts: Vec<Vec<u32>> = lens.iter().map(|&len| vec![0; len]).collect();
        for rank in 0..cuts.ranks {
            for ((tensor, range), &len) in counts.iter_mut().zip(cuts.of(rank)).zip(lens) {
                assert_eq!(range.start % 4 * (len - range.start), 0, "{range:?} of {len}");
                assert!(range.end % 4 == 0 || range.end == len, "{range:?} of {len}");
                tensor[range].iter_mut().for_each(|n| *n += 1);
            }
        }
        assert!(counts.iter().flatten().all(|&n| n == 1), "{cuts:?}");
        // Every byte a different one, as far as a byte goes.
        let whole: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(t, &len)| (0..len).map(|i| (31 * t + i) as u8).collect()).collect();
        let parts: Vec<Vec<u8>> = (0..cuts.ranks)
            .map(|rank| {
                let own = whole.iter().zip(cuts.of(rank));
                own.flat_map(|(tensor, range)| tensor[range].to_vec()).collect()
            })
            .collect();
        assert_eq!(cuts.join(&parts), Some(whole));
        let mut longer = parts.clone();
        longer[cuts.ranks - 1].push(0);
        assert_eq!(cuts.join(&longer), None);
        assert_eq!(cuts.join(&parts[1..]), None);
    }

    #[test]
    fn every_byte_lies_on_one_rank() {
        let mut random = Random::new(1);
        for seed in 0..1000 {
            let ranks = 1 + random.below(8) as usize;
            // Halves of words: 16-bit tensors of odd length.
            let lens: Vec<usize> = (0..=random.below(8)).map(|_| 2 * random.below(200) as usize).collect();
            check(&Cuts::uneven(lens.clone(), ranks, seed), &lens);
            check(&Cuts::even(lens.clone(), ranks), &lens);
        }
    }

    #[test]
    fn some_parts_are_empty_and_some_ranks_too() {
        let lens = [400; 8];
        for (ranks, idle) in [(1, 0), (2, 0), (3, 0), (4, 1), (7, 1)] {
            let cuts = Cuts::uneven(lens, ranks, 5);
            let of = |rank: usize| cuts.of(rank).map(|range| range.len()).sum::<usize>();
            assert_eq!((0..ranks).filter(|&rank| of(rank) == 0).count(), idle, "{cuts:?}");
            let empty = (0..ranks).flat_map(|rank| cuts.of(rank)).filter(Range::is_empty).count();
            assert!(ranks == 1 || empty > 8 * idle, "{cuts:?}");
        }
    }

    #[test]
    fn even_shares_differ_by_a_word() {
        let cuts = Cuts::even([4002], 7);
        let lens: Vec<usize> = (0..7).map(|rank| cuts.of(rank).map(|range| range.len()).sum()).collect();
        assert!(lens.iter().all(|len| len.abs_diff(4002 / 7) <= 4), "{lens:?}");
    }
}
