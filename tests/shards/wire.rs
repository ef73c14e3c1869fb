//! Ledgers on their way from part to part.

use gradclip::reference::{self, TensorBits};
use gradclip::{ClipNorm, Error, Format, Ledger, LossScale, NormType};

use crate::parts::merge;

fn ledger_of(values: &[f32], scale: f32, norm_type: NormType) -> Ledger {
    let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensors = [TensorBits::new(Format::F32, &mut bytes)];
    let clip = ClipNorm::new(1.0).unwrap().with_norm_type(norm_type);
    reference::ledger(&tensors, LossScale::new(scale).unwrap(), Some(clip)).unwrap()
}

fn ledger() -> Ledger {
    ledger_of(&[24.0, -32.0, 1e-30, 3e38], 8.0, NormType::L2)
}

#[track_caller]
fn refused(got: Result<Ledger, Error>, why: &str) {
    match got {
        Err(Error::Ledger { what }) => assert!(what.contains(why), "\"{what}\" does not say \"{why}\""),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_form_brings_it_back() {
    for values in [&[][..], &[0.0], &[3.0, -4.0], &[f32::NAN, f32::INFINITY, 1.0], &[f32::MAX, 1e-45]] {
        for (scale, norm_type) in [(1.0, NormType::L2), (1e-45, NormType::L1), (f32::MAX, NormType::L1)] {
            let ledger = ledger_of(values, scale, norm_type);
            assert_eq!(Ledger::from_words(&ledger.to_words()), Ok(ledger.clone()));
            assert_eq!(Ledger::from_bytes(&ledger.to_bytes()), Ok(ledger.clone()));
            #[cfg(feature = "serde")]
            {
                let json = serde_json::to_string(&ledger).unwrap();
                assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), ledger, "{json}");
            }
        }
    }
}

#[test]
fn what_it_says() {
    let ledger = ledger_of(&[24.0, -32.0, 0.0], 8.0, NormType::L2);
    assert_eq!((ledger.parts(), ledger.elements(), ledger.scale()), (1, 3, 8.0));
    assert_eq!(ledger.total_norm().unwrap().to_f64(), 5.0);
    // 24^2 in units of 2^-12, and 32^2 in units of 2^10, since 32 is where the next cell begins.
    assert_eq!(ledger.cells()[14..16], [576 << 12, 1]);
    let ledger = ledger_of(&[24.0, -32.0], 8.0, NormType::L1);
    assert_eq!(ledger.total_norm().unwrap().to_f64(), 7.0);
    let ledger = ledger_of(&[f32::NAN, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0], 0.5, NormType::L2);
    assert_eq!((ledger.nonfinite(), ledger.total_norm()), ([2, 1, 1], None));
    assert_eq!(ledger_of(&[f32::MAX, 1.0], 0.5, NormType::L2).overflowing(), 1);
}

#[test]
fn no_changed_bit_goes_unseen() {
    let bytes = merge(&[ledger(), ledger(), ledger()]).to_bytes();
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Ledger::from_bytes(&changed).is_err(), "bit {bit}");
    }
    for (a, b) in [(0, 8), (24, 32), (96, 104), (96, 312), (312, 320)] {
        let mut swapped = bytes;
        for i in 0..8 {
            swapped.swap(a + i, b + i);
        }
        assert!(swapped == bytes || Ledger::from_bytes(&swapped).is_err(), "words at {a} and {b}");
    }
}

#[test]
fn what_is_no_ledger_is_refused() {
    let bytes = ledger().to_bytes();
    refused(Ledger::from_bytes(&[]), "0 bytes, not 352");
    refused(Ledger::from_bytes(&bytes[1..]), "351 bytes");
    refused(Ledger::from_bytes(&[&bytes[..], &[0]].concat()), "353 bytes");
    refused(Ledger::from_words(&[1; 4]), "4 words, not 44");
    refused(Ledger::from_bytes(&[0; Ledger::BYTES]), "0 parts");
    refused(Ledger::from_bytes(&[0xff; Ledger::BYTES]), "parts");
    let mut text = [b' '; Ledger::BYTES];
    text[..17].copy_from_slice(b"{\"version\": 1, \n}");
    refused(Ledger::from_bytes(&text), "parts");
    let mut words = ledger().to_words();
    words[34] += 1;
    refused(Ledger::from_words(&words), "checksum");
    let mut big_endian = bytes;
    big_endian.chunks_exact_mut(8).for_each(<[u8]>::reverse);
    refused(Ledger::from_bytes(&big_endian), "parts");
}

#[cfg(feature = "serde")]
#[test]
fn text_is_checked_as_well() {
    let json = serde_json::to_value(ledger()).unwrap();
    let read = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json);
        serde_json::from_value::<Ledger>(json).map_err(|e| e.to_string())
    };
    assert_eq!(read(&|_| {}), Ok(ledger()));
    let refused = |change: &dyn Fn(&mut serde_json::Value), why: &str| {
        let error = read(change).expect_err(why);
        assert!(error.contains(why), "\"{error}\" does not say \"{why}\"");
    };
    refused(&|json| json["version"] = 1.into(), "it is of version 1, and this crate's are of 2");
    refused(&|json| json["elements"] = 5.into(), "checksum");
    refused(&|json| json["cells"][29 - 3] = 7.into(), "checksum");
    refused(&|json| json["f16"][3] = 1.into(), "checksum");
    refused(&|json| json["scale"] = 4.0.into(), "checksum");
    refused(&|json| json["norm_type"] = "l1".into(), "checksum");
    refused(&|json| json["norm_type"] = "l3".into(), "unknown variant");
    refused(&|json| json["rank"] = 0.into(), "unknown field");
    refused(
        &|json| {
            json.as_object_mut().unwrap().remove("nan");
        },
        "missing field",
    );
}

#[test]
fn only_what_belongs_together_is_added_up() {
    let mut sum = ledger();
    let before = sum.clone();
    let other = ledger_of(&[1.0], 16.0, NormType::L2);
    let why = sum.merge(&other).unwrap_err().to_string();
    assert!(why.contains("different loss scales, 8 and 16"), "{why}");
    let other = ledger_of(&[1.0], 8.0, NormType::L1);
    assert!(sum.merge(&other).unwrap_err().to_string().contains("different norms, L2 and L1"));
    let clip = ClipNorm::new(1.0).unwrap();
    for clip in [None, Some(ClipNorm::new(1.5).unwrap()), Some(clip.with_eps(0.0).unwrap())] {
        let other = reference::ledger(&[], LossScale::new(8.0).unwrap(), clip).unwrap();
        assert!(sum.merge(&other).unwrap_err().to_string().contains("different limits"), "{clip:?}");
    }
    assert_eq!(sum, before);
    let linf = ClipNorm::new(1.0).unwrap().with_norm_type(NormType::Linf);
    assert!(matches!(
        reference::ledger(&[], LossScale::ONE, Some(linf)),
        Err(Error::ShardLimit { why, .. }) if why.contains("no sum")
    ));

    // Where an all-reduce adds words up, no one looks at two ledgers at a time.
    let add = |ledgers: &[Ledger]| {
        let mut sum = [0u64; Ledger::WORDS];
        for ledger in ledgers {
            sum.iter_mut().zip(ledger.to_words()).for_each(|(a, b)| *a = a.wrapping_add(b));
        }
        Ledger::from_words(&sum)
    };
    let of = |scale, norm_type| ledger_of(&[1.0], scale, norm_type);
    let l2 = |scale| of(scale, NormType::L2);
    assert_eq!(add(&[l2(8.0), l2(8.0)]), Ok(merge(&[l2(8.0), l2(8.0)])));
    // The bits of the scale in the middle are the mean of the others'.
    refused(add(&[l2(8.0), l2(32.0)]), "different loss scales");
    refused(add(&[l2(8.0), l2(32.0), l2(16.0)]), "different loss scales");
    refused(add(&[l2(8.0), l2(9.0)]), "different loss scales");
    refused(add(&[l2(8.0), of(8.0, NormType::L1)]), "different norms");
}

#[test]
fn order_does_not_matter() {
    let parts: Vec<Ledger> = [1e-40, 1.0, 1e20, 3e38, -7.5, 0.0]
        .iter()
        .map(|&value| ledger_of(&[value, value / 3.0], 2.0, NormType::L2))
        .collect();
    let whole = merge(&parts);
    let mut reversed = parts.clone();
    reversed.reverse();
    assert_eq!(merge(&reversed), whole);
    assert_eq!(merge(&[merge(&parts[..2]), merge(&parts[2..])]), whole);
    assert_eq!(whole.parts(), 6);
    assert_eq!(whole.clone().complete(6), Ok(whole.clone()));
    refused(whole.complete(7), "6 parts, not 7");
    refused(parts[0].clone().complete(6), "1 parts, not 6");
}
