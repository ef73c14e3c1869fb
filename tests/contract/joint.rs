//! Several sets under one norm.

use gradclip::reference::{TensorBits, step};
use gradclip::{Error, Format, GradScaler, GradSet, Joint, Limit, ScalerConfig, TensorSlice};

use crate::common::runner::{download, upload};
use crate::support::{Rig, gpus, slice, submit};

#[test]
fn one_norm_two_optimizers() {
    for gpu in gpus() {
        let (trunk, head) =
            (Rig::new(&gpu.context, "trunk", &[24.0]), Rig::new(&gpu.context, "head", &[32.0]));
        let joint = Joint::new([&trunk.set, &head.set]).unwrap();
        let limit = || Limit::norm(1.0).eps(0.0);
        submit(&gpu.context, |encoder| joint.record(encoder, 8.0, limit()).unwrap());
        assert_eq!((trunk.gradients()[0], head.gradients()[0]), (0.6, 0.8), "{}", gpu.info.name);
        for set in [&trunk.set, &head.set] {
            let report = set.read_report().unwrap();
            assert_eq!((report.total_norm, report.taken), (Some(5.0), 1));
        }
        // NaN in one skips both, and says where it is.
        trunk.put(&[f32::NAN]);
        head.put(&[32.0]);
        submit(&gpu.context, |encoder| joint.record(encoder, 8.0, limit()).unwrap());
        assert_eq!(head.gradients(), [32.0]);
        let [t, h] = [&trunk.set, &head.set].map(|set| set.read_report().unwrap());
        assert!(t.skipped && h.skipped && h.found_inf);
        assert_eq!((t.nonfinite.len(), h.nonfinite.len()), (1, 0));

        // Under a scaler: one guard, one update.
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::constant(8.0)).unwrap();
        trunk.put(&[24.0]);
        let step = scaler.begin(&joint).unwrap();
        assert!(matches!(scaler.begin(&trunk.set), Err(Error::StepOpen { .. })));
        submit(&gpu.context, |encoder| {
            let step = step.unscale().limit(limit()).record(encoder).unwrap();
            scaler.update(encoder, [step]).unwrap();
        });
        assert_eq!((trunk.gradients()[0], head.gradients()[0]), (0.6, 0.8));
        assert_eq!(scaler.state_dict().unwrap().stepped, 2);
    }
}

/// Cut over sets in any way, the bits are those of one set with everything.
#[test]
fn any_cut_has_the_bits_of_one_set() {
    let mut seed = 1u32;
    let mut number = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed
    };
    for gpu in gpus() {
        for round in 0..12 {
            let mut parts: Vec<(Format, Vec<u8>)> = Vec::new();
            for _ in 0..=number() % 4 + 1 {
                let format = Format::ALL[number() as usize % 3];
                // Now and then of any size, else near 1.
                let mask = if round % 3 == 0 { 0xbfff_bfff } else { 0xbc00_bc00 };
                let words = (0..number() % 700 + 1).map(|_| number() & mask | 0x2000_2000);
                parts.push((format, words.flat_map(u32::to_le_bytes).collect()));
            }
            let scale = [1.0, 1024.0, 3.0][round % 3];
            let limit = || Limit::norm(0.75);
            let buffers: Vec<_> = parts.iter().map(|(_, bytes)| upload(&gpu.context, bytes)).collect();
            let sets: Vec<GradSet> = parts
                .iter()
                .zip(&buffers)
                .enumerate()
                .map(|(i, ((format, bytes), buffer))| {
                    let len = bytes.len() as u64 / format.size();
                    let slice = TensorSlice { buffer, offset: 0, len, format: *format };
                    GradSet::builder(i.to_string()).tensor("part", slice).build(&gpu.context).unwrap()
                })
                .collect();
            let joint = Joint::new(&sets).unwrap();
            submit(&gpu.context, |encoder| joint.record(encoder, scale, limit()).unwrap());
            let mut tensors: Vec<TensorBits<'_>> =
                parts.iter_mut().map(|(format, bytes)| TensorBits::new(*format, bytes)).collect();
            let outcome = step(&mut tensors, scale, limit());
            drop(tensors);
            for ((set, buffer), (_, bytes)) in sets.iter().zip(&buffers).zip(&parts) {
                assert_eq!(
                    &download(&gpu.context, buffer).unwrap(),
                    bytes,
                    "round {round} on {}",
                    gpu.info.name
                );
                let verdict = set.read_verdict().unwrap();
                assert_eq!(verdict.norm(), outcome.total_norm);
                assert_eq!(verdict.coefficient(), outcome.coefficient);
            }
        }
    }
}

#[test]
fn w4_the_same_bytes_do_not_count_twice() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "a", &[3.0, 4.0]);
        let same = GradSet::builder("b").tensor("w", slice(&rig.page, 4, 1)).build(&gpu.context).unwrap();
        assert!(matches!(Joint::new([&rig.set, &same]), Err(Error::SharedBytes { .. })));
        assert!(matches!(Joint::new([&rig.set, &rig.set]), Err(Error::Together { .. })));
        assert!(matches!(Joint::new([]), Err(Error::Together { .. })));
    }
}

/// p11: one gradient in two optimizers would be unscaled twice.
#[test]
fn p11_two_open_sets_over_the_same_bytes() {
    for gpu in gpus() {
        let page = upload(&gpu.context, &crate::common::f32s(&[16.0]));
        let set = |name: &str, shares: bool| {
            let builder = GradSet::builder(name).tensor("w", slice(&page, 0, 1));
            let builder = if shares { builder.shares_buffers() } else { builder };
            builder.build(&gpu.context).unwrap()
        };
        let scaler = GradScaler::new(&gpu.context, ScalerConfig::constant(4.0)).unwrap();
        let (a, b) = (set("a", false), set("b", true));
        let open = scaler.begin(&a).unwrap();
        assert!(matches!(scaler.begin(&b), Err(Error::SharedBytes { .. })));
        drop(open);
        // Passes over one buffer, as in SAM, say so.
        let c = set("c", true);
        let first = scaler.begin(&b).unwrap();
        let second = scaler.begin(&c).unwrap();
        drop((first, second));
        // Another set of the same name would take the other's steps.
        let twin = set("a", false);
        assert!(matches!(scaler.begin(&twin), Err(Error::SameName { .. })));
    }
}
