//! The words of a ledger, and what is refused.

use super::words::{checksum, f16_of, tag};
use super::*;
use crate::{Format, Limit};

fn terms() -> Terms {
    Terms::new(&Limit::none().any(), 1.0, true).unwrap()
}

fn ledger() -> Ledger {
    let mut sums = Sums::default();
    sums.add(Format::F32, 0x4040_0000);
    sums.add(Format::F16, 0x7bff);
    sums.add(Format::F16, 0x0001);
    let scale = LossScale::new(2.0).unwrap();
    let (nonfinite, overflow) = ([0; 3], false);
    Ledger::of_part(Part { terms: terms(), scale, elements: 3, nonfinite, overflow, sums })
}

fn with(place: usize, value: u64) -> Result<Ledger, String> {
    let mut words = ledger().to_words();
    words[place] = value;
    words[43] = checksum(&words[..43]);
    Ledger::from_words(&words).map_err(|e| e.to_string())
}

/// Another process reads these: what they mean must not change under one version.
#[test]
fn the_words_of_version_2() {
    let mut words = [0; Ledger::WORDS];
    words[0] = u64::from_le_bytes(*b"gradclip") + (2 << 32) + (2 << 40);
    words[1] = 1;
    words[2] = 0x4000_0000;
    words[3] = 3;
    words[8] = 0x4000_0000 * 0x4000_0000;
    words[9] = 2_553_027_432_621_583_639;
    words[10] = 0x3f80_0000;
    words[11] = 0x3f80_0000 * 0x3f80_0000;
    words[12 + 14] = 9 << 12;
    // 65504^2 * 2^48 + 1
    words[39..43].copy_from_slice(&[1, 0x0400_0000, 0xffc0, 0]);
    words[43] = 3_926_688_594_021_241_869;
    assert_eq!(ledger().to_words(), words);
}

#[test]
fn another_version_is_refused() {
    let mut words = ledger().to_words();
    for version in [1, 3] {
        words[0] = tag(NormType::L2) - (2 << 32) + (version << 32);
        words[43] = checksum(&words[..43]);
        let Err(Error::Ledger { what }) = Ledger::from_words(&words) else { panic!("taken") };
        assert!(what.contains("this version's"), "{what}");
    }
    // Also where one of two ranks runs it.
    let old = ledger().to_words();
    let sum: Vec<u64> = words.iter().zip(old).map(|(a, b)| a.wrapping_add(b)).collect();
    assert!(Ledger::from_words(&sum).is_err());
}

/// As many as there can be, of the largest words: no word of a sum overflows, and the sum of f16 comes back.
#[test]
fn words_of_f16_have_room_for_every_part() {
    let mut words = ledger().to_words().map(|word| word.wrapping_mul(MAX_PARTS - 1));
    let most = (MAX_PARTS - 1) * u64::from(u32::MAX);
    words[3] = MAX_ELEMENTS - 1;
    words[39..43].copy_from_slice(&[most, most, 7 << 32, 1 << 20]);
    words[43] = checksum(&words[..43]);
    let ledger = Ledger::from_words(&words).unwrap();
    let most = u128::from(most);
    assert_eq!(ledger.f16(), (1 << 116) + (7 << 96) + (most << 32) + most);
    assert_eq!(f16_of(&[u64::from(u32::MAX) << 32; 4], MAX_PARTS), None);
    assert_eq!(f16_of(&[0, 0, 0, u64::from(u32::MAX)], 1), Some(u128::from(u32::MAX) << 96));
}

/// What is below the kept cells counts nevertheless: a later part may carry it up.
#[test]
fn the_sum_of_f16_is_never_cut() {
    let of = |values: &[(Format, u32)]| {
        let mut sums = Sums::default();
        values.iter().for_each(|&(format, bits)| sums.add(format, bits));
        let (nonfinite, overflow, elements) = ([0; 3], false, values.len() as u64);
        Ledger::of_part(Part { terms: terms(), scale: LossScale::ONE, elements, nonfinite, overflow, sums })
    };
    let mut sum = of(&[(Format::F32, 0x7f7f_ffff), (Format::F16, 1)]);
    sum.merge(&of(&[(Format::F16, 3)])).unwrap();
    assert_eq!(sum.f16(), 10);
    // And f16 says which cells count, as f32 does.
    let mut low = of(&[(Format::F32, 0x2000_0000)]);
    assert_ne!(low.cells(), &[0; CELLS]);
    low.merge(&of(&[(Format::F16, 0x7bff)])).unwrap();
    assert_eq!(low.cells(), &[0; CELLS]);
    assert!(low.check_holds(&of(&[(Format::F32, 0x2000_0000)])).is_ok());
    assert!(low.check_holds(&of(&[(Format::F16, 0x7bff)])).is_ok());
    assert!(low.check_holds(&of(&[(Format::F16, 0x7bff), (Format::F16, 1)])).is_err());
}

#[test]
fn sums_beyond_their_room_are_refused() {
    assert!(with(3, 1 << 20).is_ok());
    for (place, value, why) in [
        (1, 0, "0 parts"),
        (1, 1 << 33, "parts"),
        (3, 1 << 42, "2^42"),
        (3, 0, "too large for 0 elements"),
        (4, 4, "too large"),
        (5, u64::MAX, "too large"),
        (7, 2, "too large"),
        (10, 0, "different divisors"),
        (11, 0, "different divisors"),
        (12, 1 << 24, "too large"),
        // One part has no more than 32 bits in a word, and three elements no more than three squares.
        (39, 1 << 32, "too large"),
        (40, u64::MAX, "too large"),
        (41, 0xffff_ffff, "too large"),
        (42, 1, "too large"),
        (42, 1 << 63, "too large"),
    ] {
        let error = with(place, value).expect_err(why);
        assert!(error.contains(why), "word {place}: {error}");
    }
    let mut full = ledger();
    full.elements = MAX_ELEMENTS - 1;
    let before = full.clone();
    assert!(full.merge(&ledger()).is_err());
    assert_eq!(full, before);
}
