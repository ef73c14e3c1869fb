//! What unscaling in place takes from f16.

use gradclip::{Format, GradSet, Limit, Prepare, ScalerConfig, TensorLost, TensorSlice};

use crate::common::runner::{download, upload};
use crate::support::{gpus, scaler, submit};

#[test]
fn p04_what_became_0_is_counted_by_tensor() {
    for gpu in gpus() {
        // 3e-8 times 2^15, 512 times: below half of 2^-24 when unscaled... and 1e-5, which is left subnormal.
        let tiny = half::f16::from_f32(2e-8 * 32_768.0).to_bits();
        let small = half::f16::from_f32(1e-5 * 32_768.0).to_bits();
        let one = half::f16::from_f32(1.0).to_bits();
        let halves: Vec<u8> = std::iter::repeat_n(tiny, 511)
            .chain([0, small, small, one])
            .flat_map(u16::to_le_bytes)
            .chain([0xff, 0x7b])
            .collect();
        let page = upload(&gpu.context, &halves);
        let of = |offset, len| TensorSlice { buffer: &page, offset, len, format: Format::F16 };
        let set = GradSet::builder("adamw")
            .tensor("norm.weight", of(1028, 1))
            .tensor("wte.weight", of(0, 513))
            .build(&gpu.context)
            .unwrap();
        set.prepare([Prepare::Lost, Prepare::EachTensor]).unwrap();
        let config = ScalerConfig::constant(32_768.0);
        let scaler = scaler(&gpu.context, config).with_reports(4);
        for deferred in [true, false] {
            submit(&gpu.context, |encoder| {
                let step = scaler.begin(&set).unwrap().unscale().count_lost().limit(Limit::none());
                let step = if deferred { step.record_deferred(encoder) } else { step.record(encoder) };
                scaler.update(encoder, [step.unwrap()]).unwrap();
            });
            let report = scaler.wait_report(std::time::Duration::from_secs(60)).unwrap().unwrap();
            let lost = &report.steps[0].report.lost;
            if deferred {
                assert_eq!(lost, &None, "a deferred step loses nothing");
                continue;
            }
            let want = [
                TensorLost { name: "norm.weight".into(), zeros: 0, subnormals: 1 },
                TensorLost { name: "wte.weight".into(), zeros: 511, subnormals: 1 },
            ];
            assert_eq!(lost.as_deref(), Some(&want[..]), "{}", gpu.info.name);
        }
        // What lies in the other half of an odd tensor's word is nobody's.
        assert_eq!(download(&gpu.context, &page).unwrap()[1030..], halves[1030..]);

        // With a limit for each element too; what was lost before is not lost again.
        submit(&gpu.context, |encoder| {
            let step = scaler.begin(&set).unwrap().unscale().count_lost().limit(Limit::value(0.0));
            let step = step.record(encoder).unwrap();
            scaler.update(encoder, [step]).unwrap();
        });
        let report = scaler.wait_report(std::time::Duration::from_secs(60)).unwrap().unwrap();
        let zeros: Vec<u64> = report.steps[0].report.lost.iter().flatten().map(|lost| lost.zeros).collect();
        assert_eq!(zeros, [1, 1], "{}", gpu.info.name);
    }
}
