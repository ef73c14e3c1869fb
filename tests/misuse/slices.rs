//! Slices that cannot be: offset, end, overlap, usage, names.

use gradclip::plan::PlanLimits;
use gradclip::{Format, TensorSlice, wgpu};

use crate::support::{Gpu, adapters, build, bytes, clip, each_gpu, f32_at, f32s, refused, upload, whole};

#[test]
fn offset_not_a_multiple_of_4() {
    let message = "tensor \"wte\": byte offset 2 is not a multiple of 4; start every tensor at a 32-bit word";
    for format in Format::ALL {
        refused(message, |buffer| vec![("wte", TensorSlice { buffer, offset: 2, len: 1, format })]);
    }
    let message = "tensor \"wte\": byte offset 18446744073709551615 is not a multiple of 4; start every tensor at a \
         32-bit word";
    refused(message, |buffer| vec![("wte", f32_at(buffer, u64::MAX, 1))]);
}

fn beyond(what: &str, len: u64, format: Format) -> String {
    let odd = format != Format::F32 && len % 2 == 1;
    let hint = if odd { "; an odd 16-bit tensor needs its whole last word" } else { "" };
    format!("tensor \"wte\": {what}, but the buffer has 8 bytes{hint}")
}

#[test]
fn beyond_the_buffer() {
    let refused = |what: &str, offset, len, format| {
        refused(&beyond(what, len, format), |buffer| {
            vec![("wte", TensorSlice { buffer, offset, len, format })]
        });
    };
    refused("3 f32 elements at byte 0 end at byte 12", 0, 3, Format::F32);
    refused("2 f32 elements at byte 4 end at byte 12", 4, 2, Format::F32);
    refused("0 f32 elements at byte 12 end at byte 12", 12, 0, Format::F32);
    refused("5 f16 elements at byte 0 end at byte 12", 0, 5, Format::F16);
    refused("3 bf16 elements at byte 4 end at byte 12", 4, 3, Format::Bf16);
}

/// Sums that wrap in 64 bits.
#[test]
fn offset_and_length_beyond_64_bits() {
    let max = u64::MAX;
    for (what, offset, len, format) in [
        (format!("{max} f32 elements at byte 4 end at byte 73786976294838206464"), 4, max, Format::F32),
        (format!("{max} f16 elements at byte 0 end at byte 36893488147419103232"), 0, max, Format::F16),
        (
            "1 f32 elements at byte 18446744073709551612 end at byte 18446744073709551616".into(),
            max - 3,
            1,
            Format::F32,
        ),
        (
            "4611686018427387905 f32 elements at byte 0 end at byte 18446744073709551620".into(),
            0,
            (1 << 62) + 1,
            Format::F32,
        ),
    ] {
        refused(&beyond(&what, len, format), |buffer| {
            vec![("wte", TensorSlice { buffer, offset, len, format })]
        });
    }
}

fn half(buffer: &wgpu::Buffer, offset: u64, len: u64) -> TensorSlice<'_> {
    TensorSlice { buffer, offset, len, format: Format::F16 }
}

#[test]
fn overlap() {
    let message = "tensors \"wte\" and \"lm_head\" overlap in one buffer; add a shared gradient once";
    refused(message, |buffer| vec![("wte", whole(buffer)), ("lm_head", whole(buffer))]);
    refused(message, |buffer| vec![("wte", whole(buffer)), ("lm_head", f32_at(buffer, 4, 1))]);
    refused(message, |buffer| vec![("lm_head", f32_at(buffer, 4, 1)), ("wte", whole(buffer))]);
    refused(message, |buffer| vec![("wte", half(buffer, 0, 3)), ("lm_head", half(buffer, 4, 1))]);
    refused(message, |buffer| vec![("wte", half(buffer, 0, 4)), ("lm_head", f32_at(buffer, 4, 1))]);
    refused(message, |buffer| {
        vec![("wte", whole(buffer)), ("empty", f32_at(buffer, 4, 0)), ("lm_head", f32_at(buffer, 4, 1))]
    });
}

/// Neighbours and empty tensors share no byte.
#[test]
fn touching_and_empty_slices_are_fine() {
    each_gpu(|gpu| {
        let buffer = upload(gpu, &[3.0, 4.0]);
        let (first, second) = (f32_at(&buffer, 0, 1), f32_at(&buffer, 4, 1));
        let (inside, at_end) = (f32_at(&buffer, 4, 0), f32_at(&buffer, 8, 0));
        let set =
            build(gpu, &[("b", second), ("in", inside), ("in too", inside), ("end", at_end), ("a", first)])
                .unwrap();
        assert_eq!(clip(gpu, &set, 1.0).total_norm, Some(5.0));
        assert_eq!(bytes(gpu, &buffer), f32s(&[0.6, 0.8]), "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn missing_usage() {
    each_gpu(|gpu| {
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::UNIFORM;
        let buffer = with_usage(gpu, usage);
        let error = build(gpu, &[("wte", whole(&buffer))]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "tensor \"wte\": its buffer was created without BufferUsages::STORAGE; the kernels read and write it in \
             place"
        );
        assert_eq!(bytes(gpu, &buffer), f32s(&[3.0, 4.0]), "{}", adapters::label(&gpu.info));
    });
}

fn with_usage(gpu: &Gpu, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    use wgpu::util::DeviceExt as _;
    gpu.context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: Some("gradients"),
        contents: &f32s(&[3.0, 4.0]),
        usage,
    })
}

#[test]
fn duplicate_name() {
    let message = "two tensors are named \"wte\"; reports tell tensors apart by name, so each needs its own";
    refused(message, |buffer| vec![("wte", f32_at(buffer, 0, 1)), ("wte", f32_at(buffer, 4, 1))]);
    refused(message, |buffer| {
        vec![("wte", f32_at(buffer, 0, 0)), ("b", whole(buffer)), ("wte", whole(buffer))]
    });
}

#[test]
fn too_many_elements() {
    let tensor = gradclip::plan::PlanTensor::new(0, 0, 1 << 39, Format::F16);
    let error = gradclip::plan::Plan::new(&[tensor], &PlanLimits::webgpu()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the set has 549755813888 elements; one norm covers fewer than 2^39, so use several sets"
    );
}
