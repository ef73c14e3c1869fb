//! Many tensors, and long ones.

use gradclip::{ClipNorm, ClipValue, Context, Format, LossScale, NormType};

use crate::common::adapters::{self, label};
use crate::common::cases::Input;
use crate::common::limit::Limit;
use crate::common::runner::{Layout, limited_on_gpu, limited_on_reference};
use crate::common::{f32s, gpus};
use crate::inputs::Lcg;
use crate::random::check;

const NORMS: [NormType; 3] = [NormType::L1, NormType::L2, NormType::Linf];

fn each(max_norm: f32, norm_type: NormType) -> Limit {
    Limit::EachTensor(ClipNorm::new(max_norm).unwrap().with_norm_type(norm_type))
}

fn value(clip_value: f32) -> Limit {
    Limit::Value(ClipValue::new(clip_value).unwrap())
}

fn input(scale: f32, tensors: Vec<(Format, Vec<u8>)>) -> Input {
    Input { name: "shapes".into(), scale: LossScale::new(scale).unwrap(), clip: None, tensors }
}

fn run(gpu: &Context, who: &str, input: &Input, limit: Limit, layout: Layout) {
    let got = limited_on_gpu(gpu, input, limit, layout).unwrap();
    check(&format!("{limit:?}, {layout:?}, on {who}"), &got, &limited_on_reference(input, limit), input);
}

/// 600 small tensors, each format in turn; none is above 4.
fn many() -> Vec<(Format, Vec<u8>)> {
    let tensor = |i: usize| {
        let values: Vec<f32> = (0..i % 4).map(|j| ((i * 7 + j * 5) % 33) as f32 / 8.0 - 2.0).collect();
        match i % 3 {
            0 => (Format::F32, f32s(&values)),
            1 => (Format::F16, values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect()),
            _ => (Format::Bf16, values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect()),
        }
    };
    (0..600).map(tensor).collect()
}

/// One workgroup decides for all, a thread for every 256th. The tensor that differs from the others is a late one.
#[test]
fn more_tensors_than_a_workgroup_has_threads() {
    let f16_max = (Format::F16, vec![0xff, 0x7b]);
    for gpu in gpus() {
        let who = label(&gpu.info);
        let run = |input: &Input, limit| run(&gpu.context, &who, input, limit, Layout::Arena);
        run(&input(3.0, many()), each(0.5, NormType::L2));
        // The smallest coefficient; the only one below 1; overflow; NaN; the only element above the limit.
        let mut tensors = many();
        tensors[399] = (Format::F32, f32s(&[100.0, -3.0]));
        run(&input(1.0, tensors.clone()), each(1.0, NormType::L1));
        run(&input(1.0, tensors.clone()), each(10.0, NormType::Linf));
        run(&input(1.0, tensors), value(10.0));
        let mut tensors = many();
        tensors[583] = f16_max.clone();
        run(&input(0.5, tensors.clone()), each(200_000.0, NormType::L2));
        run(&input(0.5, tensors.clone()), value(f32::INFINITY));
        tensors[583].1[1] = 0x7e;
        run(&input(0.5, tensors), each(1.0, NormType::L2));
    }
}

/// On a device with few workgroups a dimension, so that few tensors need two.
#[test]
fn more_tensors_than_a_dispatch_is_wide() {
    const WIDTH: u32 = 16;
    let tensors: Vec<_> = many().into_iter().take(10 * WIDTH as usize + 3).collect();
    for adapter in adapters::named("all").unwrap() {
        let limits = wgpu_limits(&adapter, WIDTH);
        let gpu = adapters::open_with(&adapter, limits).unwrap();
        let who = label(&gpu.info);
        for limit in [each(1.5, NormType::L1), value(0.75)] {
            run(&gpu.context, &who, &input(8.0, tensors.clone()), limit, Layout::Arena);
        }
    }
}

fn wgpu_limits(adapter: &gradclip::wgpu::Adapter, width: u32) -> gradclip::wgpu::Limits {
    gradclip::wgpu::Limits { max_compute_workgroups_per_dimension: width, ..adapter.limits() }
}

/// Long tensors at multiples of 16 bytes are read in quads, and their last words one by one; of several tiles, too.
#[test]
fn quads_and_rest_have_one_limit() {
    let mut random = Lcg(7);
    let mut long = |format: Format, len: usize| {
        // Exponents around 1, all signs and fractions.
        let words = (0..len).map(|_| {
            let bits = random.next();
            match format {
                Format::F32 => bits & 0x81ff_ffff | 0x3e00_0000,
                Format::F16 => bits & 0x8fff | 0x3000,
                Format::Bf16 => bits & 0x81ff | 0x3e00,
            }
        });
        let size = format.size() as usize;
        (format, words.flat_map(|word| word.to_le_bytes()[..size].to_vec()).collect::<Vec<u8>>())
    };
    let mut tensors = vec![
        long(Format::F32, 33_003),
        long(Format::Bf16, 40_007),
        long(Format::F32, 64),
        long(Format::F16, 65_537),
    ];
    // The last element is the largest of its tensor.
    for (tensor, last) in [(0, &[0, 0, 0x80, 0x41][..]), (1, &[0x80, 0x41]), (3, &[0, 0x4c])] {
        let at = tensors[tensor].1.len() - last.len();
        tensors[tensor].1[at..].copy_from_slice(last);
    }
    for gpu in gpus() {
        let who = label(&gpu.info);
        let limits = NORMS.map(|norm| each(12.0, norm)).into_iter().chain([value(0.6), value(12.0)]);
        for (i, limit) in limits.enumerate() {
            let scale = [1.0, 3.0][i % 2];
            run(&gpu.context, &who, &input(scale, tensors.clone()), limit, Layout::OwnBuffers);
        }
        let l1 = Limit::Norm(Some(ClipNorm::new(1.0).unwrap().with_norm_type(NormType::L1)));
        run(&gpu.context, &who, &input(8.0, tensors.clone()), l1, Layout::OwnBuffers);
    }
}
