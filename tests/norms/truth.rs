//! What must hold of the results, told by sums in f64 that share no code with the crate's.

use gradclip::reference::apply::encode;
use gradclip::reference::norm_finish::inverse;
use gradclip::{Format, NormType};
use proptest::prelude::*;

use crate::common::cases::Input;
use crate::common::limit::Limit;
use crate::common::runner::limited_on_reference;
use crate::inputs::{any_set, limited_set};
use crate::random::{clip_of, config, norm_types};
use crate::values::{numbers, values};

/// The norm of stored elements. Numbers of one sign: the relative error is under 2^-53 an element.
fn norm_f64<'a>(tensors: impl Iterator<Item = (Format, &'a [u8])>, norm_type: NormType, scale: f64) -> f64 {
    let all = tensors.flat_map(|(format, bytes)| numbers(format, bytes)).map(|x| x.abs() / scale);
    match norm_type {
        NormType::L1 => all.sum(),
        NormType::L2 => all.map(|x| x * x).sum::<f64>().sqrt(),
        NormType::Linf => all.fold(0.0, f64::max),
    }
}

/// To 24 bits, to nearest, ties to even: nothing here is below f64's normal numbers.
fn r24(value: f64) -> f64 {
    let lost = 1u64 << 29;
    let bits = value.to_bits();
    f64::from_bits((bits + lost / 2 - 1 + ((bits / lost) & 1)) / lost * lost)
}

fn is_power_of_two(input: &Input) -> bool {
    input.scale.get().is_normal() && input.scale.get().to_bits() & 0x7f_ffff == 0
}

fn tensors<'a>(input: &'a Input, bytes: &'a [Vec<u8>]) -> impl Iterator<Item = (Format, &'a [u8])> {
    input.tensors.iter().zip(bytes).map(|(&(format, _), bytes)| (format, bytes.as_slice()))
}

/// What the norm of some tensors cannot exceed after clipping.
///
/// With u = 2^-24, one R24 or f32 rounding: of an L1 norm the sum has one, of an L2 norm u / 2 from the squares and u
/// from the root, of an Linf norm none; the coefficient and the store have one each, and the eps only lowers the result.
/// That is less than 4 u. A scale that is no power of two adds the roundings of norm * inverse and of the factor: 6 u. A
/// store into a 16-bit format adds half a unit of it, and below its normal numbers half of the smallest subnormal for
/// each element, which is what they can add to an L1 norm, and more than they can to the others.
fn bound<'a>(tensors: impl Iterator<Item = (Format, &'a [u8])>, max_norm: f64, power_of_two: bool) -> f64 {
    let unit = 2f64.powi(-24);
    let (mut relative, mut absolute) = (0f64, 0f64);
    for (format, bytes) in tensors {
        let (half_unit, half_subnormal) = match format {
            Format::F32 => (0.0, 2f64.powi(-150)),
            Format::F16 => (2f64.powi(-11), 2f64.powi(-25) + 2f64.powi(-150)),
            Format::Bf16 => (2f64.powi(-8), 2f64.powi(-134) + 2f64.powi(-150)),
        };
        relative = relative.max(half_unit);
        absolute += (bytes.len() as f64 / format.size() as f64) * half_subnormal;
    }
    max_norm * (1.0 + if power_of_two { 4.0 * unit } else { 6.0 * unit }) * (1.0 + relative) + absolute
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_norm_is_the_plain_one_rounded(set in limited_set(), norm_type in norm_types()) {
        let input = set.input_of(norm_type);
        let got = limited_on_reference(&input, Limit::Norm(Some(clip_of(&input, norm_type)))).norm;
        let before: Vec<Vec<u8>> = input.tensors.iter().map(|t| t.1.clone()).collect();
        let scale = f64::from(input.scale.get());
        let want = norm_f64(tensors(&input, &before), norm_type, scale);
        let ulp = 2f64.powi((got.to_bits() >> 52) as i32 - 1023 - 23);
        let allowed = if is_power_of_two(&input) { 1.0 } else { 3.0 };
        prop_assert!((got - want).abs() <= allowed * ulp, "{got:e}, in f64 {want:e}");
        if norm_type == NormType::Linf {
            // 24 bits times 24 bits fit f64, and a quotient of two such numbers is never close to a tie.
            let largest = norm_f64(tensors(&input, &before), norm_type, 1.0);
            prop_assert_eq!(got, r24(largest * r24(1.0 / scale)));
        }
    }

    #[test]
    fn order_and_cuts_change_no_norm(set in any_set(), norm_type in norm_types()) {
        let input = set.input_of(norm_type);
        let limit = Limit::Norm(Some(clip_of(&input, norm_type)));
        let want = limited_on_reference(&input, limit);
        prop_assert_eq!(&limited_on_reference(&input, limit), &want);
        // Two pieces of each tensor, both backwards.
        let mut other = Input { tensors: Vec::new(), ..input.clone() };
        for (format, bytes) in input.tensors.iter().rev() {
            let size = format.size() as usize;
            let reversed: Vec<u8> = bytes.rchunks_exact(size).flatten().copied().collect();
            let (a, b) = reversed.split_at(bytes.len() / size / 3 * size);
            other.tensors.extend([(*format, b.to_vec()), (*format, a.to_vec())]);
        }
        let got = limited_on_reference(&other, limit);
        prop_assert_eq!((got.norm, got.coefficient, got.factor), (want.norm, want.coefficient, want.factor));
        prop_assert_eq!((got.found_inf, got.overflow), (want.found_inf, want.overflow));
    }

    #[test]
    fn after_clipping_a_norm_is_at_most_the_limit(set in limited_set(), norm_type in norm_types()) {
        let input = set.input_of(norm_type);
        let (clip, power_of_two) = (input.clip.unwrap(), is_power_of_two(&input));
        let max_norm = f64::from(clip.max_norm());
        let all = limited_on_reference(&input, Limit::Norm(Some(clip)));
        if !all.found_inf {
            let after = norm_f64(tensors(&input, &all.tensors), norm_type, 1.0);
            let most = bound(tensors(&input, &all.tensors), max_norm, power_of_two);
            prop_assert!(after <= most, "{after:e} is above {most:e}");
        }
        let each = limited_on_reference(&input, Limit::EachTensor(clip));
        if !each.found_inf {
            for (i, tensor) in tensors(&input, &each.tensors).enumerate() {
                let after = norm_f64([tensor].into_iter(), norm_type, 1.0);
                let most = bound([tensor].into_iter(), max_norm, power_of_two);
                prop_assert!(after <= most, "tensor {i}: {after:e} is above {most:e}");
            }
        }
    }

    /// Each tensor is what it would be in a set of its own, unless another one ends the step.
    #[test]
    fn a_tensor_by_itself_is_a_set_of_one(set in any_set(), norm_type in norm_types()) {
        let input = set.input_of(norm_type);
        let clip = clip_of(&input, norm_type);
        let got = limited_on_reference(&input, Limit::EachTensor(clip));
        let of_one = |tensor: &(Format, Vec<u8>)| {
            let one = Input { tensors: vec![tensor.clone()], ..input.clone() };
            limited_on_reference(&one, Limit::Norm(Some(clip)))
        };
        let want: Vec<_> = input.tensors.iter().map(of_one).collect();
        let nonfinite = want.iter().any(|one| one.found_inf && !one.overflow);
        prop_assert_eq!(got.found_inf, want.iter().any(|one| one.found_inf));
        prop_assert_eq!(got.overflow, got.found_inf && !nonfinite);
        for (i, (one, each)) in want.iter().zip(&got.each).enumerate() {
            let own = (!one.found_inf || one.overflow).then_some(one.norm);
            prop_assert_eq!(each.norm.map(|norm| norm.to_f64()), own);
            let (coefficient, bytes) =
                if got.found_inf { (0.0, &input.tensors[i].1) } else { (one.coefficient, &one.tensors[0]) };
            prop_assert_eq!((each.coefficient.to_f64(), &got.tensors[i]), (coefficient, bytes));
        }
        let smallest = got.each.iter().map(|each| each.coefficient.to_f64()).fold(1.0, f64::min);
        prop_assert_eq!(got.coefficient, if got.found_inf { 0.0 } else { smallest });
    }

    #[test]
    fn after_clipping_by_value_no_element_is_above_it(set in any_set(), value in values()) {
        let input = set.input();
        let clip = value.of(&input);
        let got = limited_on_reference(&input, Limit::Value(clip));
        if got.found_inf {
            prop_assert!(!got.overflow || clip.get() == f32::INFINITY);
            prop_assert!(got.tensors.iter().zip(&input.tensors).all(|(after, before)| *after == before.1));
            return Ok(());
        }
        let (limit, inverse) = (f64::from(clip.get()), inverse(input.scale.get(), 1.0).unwrap());
        for (after, (format, before)) in got.tensors.iter().zip(&input.tensors) {
            let within = f64::from(clip.within(*format));
            prop_assert!(within <= limit);
            let size = format.size() as usize;
            let elements = before.chunks_exact(size).zip(after.chunks_exact(size));
            for (old, new) in elements {
                let number = |bytes: &[u8]| numbers(*format, bytes).next().unwrap();
                let mut word = [0; 4];
                word[..size].copy_from_slice(old);
                let divided = encode(*format, u32::from_le_bytes(word), inverse).map(|b| b.to_le_bytes());
                match divided {
                    Some(divided) if number(&divided[..size]).abs() <= limit => {
                        prop_assert_eq!(new, &divided[..size]);
                    }
                    _ => {
                        prop_assert_eq!(number(new).abs(), within);
                        prop_assert_eq!(number(new).is_sign_negative(), number(old).is_sign_negative());
                    }
                }
            }
        }
    }
}
