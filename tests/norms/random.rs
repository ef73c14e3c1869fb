//! On random sets, however they are cut, every adapter has the bits of the reference.

use gradclip::{ClipNorm, Format, NormType};
use proptest::prelude::*;

use crate::arrange::{Arrangement, Placed, cuttings};
use crate::common::adapters::label;
use crate::common::cases::{Answer, Input};
use crate::common::gpus;
use crate::common::limit::Limit;
use crate::common::runner::{difference, limited_on_reference};
use crate::inputs::any_set;
use crate::values::values;

/// Where one fails the smallest input is printed, and no file is left behind.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

pub fn norm_types() -> impl Strategy<Value = NormType> {
    prop::sample::select(vec![NormType::L1, NormType::L2, NormType::Linf])
}

/// The limit of a random input, or else a norm that is only measured.
pub fn clip_of(input: &Input, norm_type: NormType) -> ClipNorm {
    input.clip.unwrap_or(ClipNorm::new(f32::INFINITY).unwrap().with_norm_type(norm_type))
}

#[track_caller]
pub fn check(what: &str, got: &Answer, want: &Answer, input: &Input) {
    let formats: Vec<Format> = input.tensors.iter().map(|t| t.0).collect();
    assert_eq!(difference(got, want, &formats), None, "{what}");
}

/// One step in each arrangement on every adapter.
fn everywhere(input: &Input, limit: Limit, arrangements: &[(&str, Arrangement)]) {
    let want = limited_on_reference(input, limit);
    for gpu in gpus() {
        for (how, arrangement) in arrangements {
            let got = Placed::new(&gpu.context, input, arrangement).limited(input.scale, limit);
            check(&format!("{limit:?}, {how}, on {}", label(&gpu.info)), &got, &want, input);
        }
    }
}

proptest! {
    #![proptest_config(config(28))]

    #[test]
    fn a_norm_of_all(
        set in any_set(),
        norm_type in prop::sample::select(vec![NormType::L1, NormType::Linf]),
        cutting in cuttings(),
    ) {
        let input = set.input_of(norm_type);
        let cut = Arrangement::cut(&input, &cutting);
        let limit = Limit::Norm(Some(clip_of(&input, norm_type)));
        everywhere(&input, limit, &[("whole", Arrangement::whole(&input)), ("cut", cut)]);
    }

    /// A piece would be a tensor, so these stay whole; windows, tiles and dispatches are cut.
    #[test]
    fn a_norm_of_each_tensor(set in any_set(), norm_type in norm_types(), cutting in cuttings()) {
        let input = set.input_of(norm_type);
        let shuffled = Arrangement::cut(&input, &cutting.of_whole_tensors());
        let limit = Limit::EachTensor(clip_of(&input, norm_type));
        everywhere(&input, limit, &[("whole", Arrangement::whole(&input)), ("shuffled", shuffled)]);
    }

    #[test]
    fn a_value(set in any_set(), value in values(), cutting in cuttings()) {
        let input = set.input();
        let cut = Arrangement::cut(&input, &cutting);
        let limit = Limit::Value(value.of(&input));
        everywhere(&input, limit, &[("whole", Arrangement::whole(&input)), ("cut", cut)]);
    }
}
