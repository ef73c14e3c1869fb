//! Gradients of which every part has a copy: they count once, and every copy is scaled.

use gradclip::{ClipNorm, Format, Ledger, LossScale};

use crate::common::{f32s, gpus};
use crate::parts::{Part, Tensors, merge, on_reference};

fn tensors(values: &[f32]) -> Tensors {
    vec![(Format::F32, f32s(values))]
}

#[test]
fn a_copy_counts_once_and_is_scaled_everywhere() {
    let gpus = gpus();
    let scale = LossScale::new(8.0).unwrap();
    let clip = Some(ClipNorm::new(1.0).unwrap());
    let (shards, copied) = ([tensors(&[24.0, -1.0]), tensors(&[32.0])], tensors(&[0.5, -7.25]));
    let whole = [&shards[0][..], &shards[1], &copied].concat();
    let (want, want_bytes) = on_reference(&whole, scale, clip);

    let ranks: Vec<[Part; 2]> = (0..2)
        .map(|rank| {
            let gpu = &gpus[rank % gpus.len()].context;
            [Part::new(gpu, &shards[rank]), Part::new(gpu, &copied)]
        })
        .collect();
    // Every rank measures its copy, and only the first one's is added.
    let mut sum = [0u64; Ledger::WORDS];
    for (rank, [shard, copy]) in ranks.iter().enumerate() {
        let mut ledger = shard.measure(scale, clip).unwrap();
        let of_copy = copy.measure(scale, clip).unwrap();
        if rank == 0 {
            ledger = merge(&[ledger, of_copy]);
        }
        sum.iter_mut().zip(ledger.to_words()).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
    }
    // A rank that holds nothing adds zeros.
    let merged = Ledger::from_words(&sum).unwrap();
    assert_eq!(merged.elements(), 5);
    for (rank, [shard, copy]) in ranks.iter().enumerate() {
        for (part, want_bytes) in [(shard, &want_bytes[rank]), (copy, &want_bytes[2])] {
            assert_eq!(part.finish(&merged).unwrap().total_norm, Some(want.total_norm.to_f64()));
            assert_eq!(&part.bytes()[0], want_bytes);
        }
    }
}
