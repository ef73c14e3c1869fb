mod common;
use common::*;
#[path = "properties/inputs.rs"]
mod inputs;
#[path = "shards/parts.rs"]
mod parts;
use gradclip::reference;
use gradclip::*;
use parts::*;
use proptest::prelude::*;
proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn all(set in inputs::any_set(), v in prop_oneof![0.0..1.2f32, Just(f32::INFINITY), (0..0x7f80_0000u32).prop_map(f32::from_bits)]) {
        let input = set.input();
        for gpu in gpus() {
            for t in [NormType::L1, NormType::L2, NormType::Linf] {
                let clip = input.clip.map(|c| c.with_norm_type(t)).or(Some(ClipNorm::new(f32::INFINITY).unwrap().with_norm_type(t)));
                let (want, wb) = on_reference(&input.tensors, input.scale, clip);
                let part = Part::new(&gpu.context, &input.tensors);
                part.submit(|e| part.set.record(e, input.scale, clip)).unwrap();
                let r = part.set.read_report().unwrap();
                prop_assert_eq!((r.found_inf, r.overflow, r.total_norm, r.coefficient, r.factor), (want.found_inf, want.overflow, want.total_norm.to_f64(), want.coefficient.to_f64(), want.factor.to_f64()));
                prop_assert_eq!(part.bytes(), wb);
                // per tensor
                let part = Part::new(&gpu.context, &input.tensors);
                let mut b: Vec<Vec<u8>> = input.tensors.iter().map(|t| t.1.clone()).collect();
                let (want, clips) = reference::step_per_tensor(&mut bits(&input.tensors, &mut b), input.scale, clip.unwrap());
                part.submit(|e| part.set.record_clip_per_tensor(e, input.scale, clip.unwrap())).unwrap();
                let r = part.set.read_report().unwrap();
                prop_assert_eq!((r.found_inf, r.overflow, r.total_norm, r.coefficient, r.factor), (want.found_inf, want.overflow, want.total_norm.to_f64(), want.coefficient.to_f64(), want.factor.to_f64()));
                prop_assert_eq!(part.set.read_tensor_clips().unwrap(), clips);
                prop_assert_eq!(part.bytes(), b);
            }
            let part = Part::new(&gpu.context, &input.tensors);
            let mut b: Vec<Vec<u8>> = input.tensors.iter().map(|t| t.1.clone()).collect();
            let clip = ClipValue::new(v).unwrap();
            let want = reference::step_clip_value(&mut bits(&input.tensors, &mut b), input.scale, clip);
            part.submit(|e| part.set.record_clip_value(e, input.scale, clip)).unwrap();
            let r = part.set.read_report().unwrap();
            prop_assert_eq!((r.found_inf, r.overflow, r.total_norm, r.coefficient, r.factor), (want.found_inf, want.overflow, want.total_norm.to_f64(), want.coefficient.to_f64(), want.factor.to_f64()));
            prop_assert_eq!(part.bytes(), b);
        }
    }
}
