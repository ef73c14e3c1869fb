//! Counted or not, scaled or not.

use gradclip::reference::{TensorBits, step};
use gradclip::{Format, GradSet, Limit, Role};

use crate::common::runner::{download, upload};
use crate::support::{floats, gpus, slice, submit};

#[test]
fn each_tensor_in_its_role() {
    for gpu in gpus() {
        for (values, scale) in [
            ([3.0, 4.0, 100.0, 12.0], 1.0),
            ([3.0, f32::NAN, 100.0, 12.0], 1.0),
            ([3.0, 4.0, f32::NAN, 12.0], 1.0),
            ([3.0, 4.0, 100.0, f32::INFINITY], 1.0),
            // Overflow counts where it would be written.
            ([3.0, 4.0, 3e38, 12.0], 0.5),
            ([3.0, 4.0, 100.0, 3e38], 0.5),
        ] {
            let roles = [Role::CountedAndScaled, Role::CountedAndScaled, Role::ScaledOnly, Role::CountedOnly];
            let page = upload(&gpu.context, &crate::common::f32s(&values));
            let mut builder = GradSet::builder("lora");
            for (i, role) in roles.into_iter().enumerate() {
                builder = builder.tensor(i.to_string(), slice(&page, 4 * i as u64, 1).with_role(role));
            }
            let set = builder.build(&gpu.context).unwrap();
            let limit = || if scale == 1.0 { Limit::norm(1.0).eps(0.0) } else { Limit::none() };
            submit(&gpu.context, |encoder| set.record(encoder, scale, limit()).unwrap());

            let mut bytes = values.map(|value| value.to_le_bytes());
            let mut tensors: Vec<TensorBits<'_>> = bytes
                .iter_mut()
                .zip(roles)
                .map(|(bytes, role)| TensorBits::new(Format::F32, bytes).with_role(role))
                .collect();
            let outcome = step(&mut tensors, scale, limit());
            drop(tensors);
            let want: Vec<u32> = bytes.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            let got: Vec<u32> =
                floats(&download(&gpu.context, &page).unwrap()).iter().map(|v| v.to_bits()).collect();
            assert_eq!(got, want, "{values:?} on {}", gpu.info.name);
            let report = set.read_report().unwrap();
            assert_eq!((report.skipped, report.overflow), (outcome.skipped, outcome.overflow), "{values:?}");
            if values == [3.0, 4.0, 100.0, 12.0] {
                assert_eq!(report.total_norm, Some(13.0));
                assert_eq!(f32::from_bits(want[3]), 12.0);
                assert_ne!(f32::from_bits(want[2]), 100.0);
            }
        }
    }
}
