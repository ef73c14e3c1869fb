//! Moving a set to other buffers.

use gradclip::plan::PlanLimits;
use gradclip::{Error, Format, GradSet, LossScale, Nonfinite, TensorReport, TensorSlice, wgpu};

use crate::support::{
    Gpu, adapters, build, bytes, clip, each_gpu, encoder, f32_at, f32s, limit, upload, whole,
};

/// A set of "wte" = [3] and "lm_head" = [4] in buffers of their own.
fn three_four(gpu: &Gpu) -> ([wgpu::Buffer; 2], GradSet) {
    let buffers = [upload(gpu, &[3.0]), upload(gpu, &[4.0])];
    let set = build(gpu, &[("wte", whole(&buffers[0])), ("lm_head", whole(&buffers[1]))]).unwrap();
    (buffers, set)
}

/// A rebind that fails with this message, after which the set still clips the buffers that it had.
fn refused(message: &str, slices: impl Fn(&[wgpu::Buffer]) -> Vec<TensorSlice<'_>>) {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let (old, set) = three_four(gpu);
        let new = [upload(gpu, &[6.0, 8.0]), upload(gpu, &[6.0, 8.0])];
        let plan = set.plan().clone();
        let error = set.rebind(&slices(&new)).expect_err(message);
        assert_eq!(error.to_string(), message, "{at}");
        assert_eq!(set.plan(), plan);
        assert_eq!(clip(gpu, &set, 1.0).total_norm, Some(5.0), "{at}");
        assert_eq!([bytes(gpu, &old[0]), bytes(gpu, &old[1])], [f32s(&[0.6]), f32s(&[0.8])], "{at}");
        for buffer in &new {
            assert_eq!(bytes(gpu, buffer), f32s(&[6.0, 8.0]), "{at}");
        }
    });
}

#[test]
fn wrong_count() {
    let message = |given| {
        format!("set \"adamw\" has 2 tensors, but {given} slices were given; build a new set instead")
    };
    refused(&message(0), |_| vec![]);
    refused(&message(1), |new| vec![f32_at(&new[0], 0, 1)]);
    refused(&message(3), |new| vec![f32_at(&new[0], 0, 1); 3]);
}

#[test]
fn wrong_shape() {
    refused(
        "tensor \"lm_head\" was built as 1 f32 elements, but rebound as 2 f32; build a new set instead",
        |new| vec![f32_at(&new[0], 0, 1), f32_at(&new[1], 0, 2)],
    );
    refused(
        "tensor \"wte\" was built as 1 f32 elements, but rebound as 1 bf16; build a new set instead",
        |new| {
            let bf16 = TensorSlice { format: Format::Bf16, ..f32_at(&new[0], 0, 1) };
            vec![bf16, f32_at(&new[1], 0, 1)]
        },
    );
}

#[test]
fn wrong_slices() {
    refused("tensors \"wte\" and \"lm_head\" overlap in one buffer; add a shared gradient once", |new| {
        vec![f32_at(&new[0], 4, 1), f32_at(&new[0], 4, 1)]
    });
    refused(
        "tensor \"wte\": byte offset 1 is not a multiple of 4; start every tensor at a 32-bit word",
        |new| vec![f32_at(&new[0], 1, 1), f32_at(&new[1], 0, 1)],
    );
    refused(
        "tensor \"lm_head\": 1 f32 elements at byte 8 end at byte 12, but the buffer has 8 bytes",
        |new| vec![f32_at(&new[0], 0, 1), f32_at(&new[1], 8, 1)],
    );
}

/// wgpu finds this one only when it binds, for the second of the two windows.
#[test]
fn a_destroyed_buffer() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let (old, set) = three_four(gpu);
        let new = [upload(gpu, &[6.0]), upload(gpu, &[8.0])];
        new[1].destroy();
        let error = set.rebind(&[whole(&new[0]), whole(&new[1])]).unwrap_err();
        assert!(matches!(error, Error::Wgpu { .. }), "{error:?}");
        assert_eq!(clip(gpu, &set, 1.0).total_norm, Some(5.0), "{at}");
        assert_eq!([bytes(gpu, &old[0]), bytes(gpu, &old[1])], [f32s(&[0.6]), f32s(&[0.8])], "{at}");
        assert_eq!(bytes(gpu, &new[0]), f32s(&[6.0]), "{at}");
    });
}

#[test]
fn same_layout_keeps_the_plan() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let (old, set) = three_four(gpu);
        let new = [upload(gpu, &[6.0]), upload(gpu, &[8.0])];
        let (plan, memory, verdict) = (set.plan(), set.memory_bytes(), set.verdict().buffer.clone());
        set.rebind(&[whole(&new[0]), whole(&new[1])]).unwrap();
        assert_eq!((set.plan(), set.memory_bytes()), (plan, memory));
        assert_eq!(*set.verdict().buffer, verdict);
        assert_eq!(clip(gpu, &set, 5.0).total_norm, Some(10.0), "{at}");
        assert_eq!([bytes(gpu, &new[0]), bytes(gpu, &new[1])], [f32s(&[3.0]), f32s(&[4.0])], "{at}");
        assert_eq!([bytes(gpu, &old[0]), bytes(gpu, &old[1])], [f32s(&[3.0]), f32s(&[4.0])], "{at}");
    });
}

#[test]
fn other_layout_plans_anew() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let (old, set) = three_four(gpu);
        let plan = set.plan().clone();
        let verdict = set.verdict().buffer.clone();
        // Both in one buffer, in the other order, with a neighbour.
        let arena = upload(gpu, &[8.0, f32::NAN, 6.0]);
        set.rebind(&[f32_at(&arena, 8, 1), f32_at(&arena, 0, 1)]).unwrap();
        assert_ne!(set.plan(), plan);
        assert_eq!(*set.verdict().buffer, verdict);
        assert_eq!(clip(gpu, &set, 5.0).total_norm, Some(10.0), "{at}");
        assert_eq!(bytes(gpu, &arena), f32s(&[4.0, f32::NAN, 3.0]), "{at}");
        assert_eq!([bytes(gpu, &old[0]), bytes(gpu, &old[1])], [f32s(&[3.0]), f32s(&[4.0])], "{at}");
        // And back.
        set.rebind(&[whole(&old[0]), whole(&old[1])]).unwrap();
        assert_eq!(set.plan(), plan);
        assert_eq!(clip(gpu, &set, 1.0).run, 2);
        assert_eq!([bytes(gpu, &old[0]), bytes(gpu, &old[1])], [f32s(&[0.6]), f32s(&[0.8])], "{at}");
    });
}

#[test]
fn a_recorded_step_keeps_its_buffers() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let (old, set) = three_four(gpu);
        let new = [upload(gpu, &[6.0]), upload(gpu, &[8.0])];
        let arena = upload(gpu, &[9.0, 12.0]);
        let mut encoder = encoder(gpu);
        set.record(&mut encoder, LossScale::ONE, limit(1.0)).unwrap();
        set.rebind(&[whole(&new[0]), whole(&new[1])]).unwrap();
        set.record(&mut encoder, LossScale::ONE, limit(5.0)).unwrap();
        set.rebind(&[f32_at(&arena, 0, 1), f32_at(&arena, 4, 1)]).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        let report = set.read_report().unwrap();
        assert_eq!((report.run, report.total_norm), (2, Some(10.0)), "{at}");
        assert_eq!([bytes(gpu, &old[0]), bytes(gpu, &old[1])], [f32s(&[0.6]), f32s(&[0.8])], "{at}");
        assert_eq!([bytes(gpu, &new[0]), bytes(gpu, &new[1])], [f32s(&[3.0]), f32s(&[4.0])], "{at}");
        assert_eq!(bytes(gpu, &arena), f32s(&[9.0, 12.0]), "{at}");
    });
}

/// The report of a step that ran before a rebind to another layout: the places are those of its own plan.
#[test]
fn a_report_from_before_names_the_right_element() {
    each_gpu(|gpu| {
        let at = adapters::label(&gpu.info);
        let mut limits = PlanLimits::from_device(gpu.context.device());
        limits.tile_words = 16;
        let mut values = [1.0; 200];
        values[170] = f32::INFINITY;
        let first = upload(gpu, &values);
        let (a, b) = (f32_at(&first, 0, 100), f32_at(&first, 400, 90));
        let builder = GradSet::builder("adamw").plan_limits(limits).tensor("a", a).tensor("b", b);
        let set = builder.build(&gpu.context).unwrap();
        let mut encoder = encoder(gpu);
        set.record(&mut encoder, LossScale::ONE, limit(1.0)).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        // The other order: the tiles of b now come first.
        let second = upload(gpu, &[1.0; 200]);
        set.rebind(&[f32_at(&second, 400, 100), f32_at(&second, 0, 90)]).unwrap();
        let report = set.read_report().unwrap();
        let inf = Nonfinite { pos_inf: 1, first: Some(70), ..Nonfinite::default() };
        assert_eq!(report.nonfinite, [TensorReport { name: "b".into(), nonfinite: inf }], "{at}");
    });
}
