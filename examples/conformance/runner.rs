//! Runs a step on an adapter in one of several layouts and compares every bit.

use gradclip::plan::PlanLimits;
use gradclip::reference::TensorBits;
use gradclip::{Context, Format, GradSet, TensorClip, TensorSlice, wgpu};

use super::cases::{Answer, Input, Step};
use super::limit::Limit;

/// How the tensors lie in buffers and how the work is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A buffer for each tensor.
    OwnBuffers,
    /// One buffer, odd multiples of 4 bytes, NaN in the gaps.
    Arena,
    /// A buffer for each tensor, last tensor first.
    Reversed,
    /// One buffer, cut as small as it gets.
    TinyLimits,
}

impl Layout {
    pub const ALL: [Self; 4] = [Self::OwnBuffers, Self::Arena, Self::Reversed, Self::TinyLimits];
}

/// What fills the gaps: NaN in every format.
const GAP: u8 = 0xff;

/// The CPU reference's answer.
pub fn on_reference(case: &Input) -> Answer {
    limited_on_reference(case, Limit::Norm(case.clip))
}

/// The CPU reference's answer with any limit.
pub fn limited_on_reference(case: &Input, limit: Limit) -> Answer {
    let mut bytes: Vec<Vec<u8>> = case.tensors.iter().map(|(_, b)| b.clone()).collect();
    let mut tensors: Vec<TensorBits<'_>> = case
        .tensors
        .iter()
        .zip(&mut bytes)
        .map(|(&(format, _), bytes)| TensorBits::new(format, bytes))
        .collect();
    let (outcome, each) = limit.on_reference(&mut tensors, case.scale);
    Answer {
        found_inf: outcome.found_inf,
        overflow: outcome.overflow,
        norm: outcome.total_norm.to_f64(),
        coefficient: outcome.coefficient.to_f64(),
        factor: outcome.factor.to_f64(),
        nonfinite: outcome.nonfinite,
        tensors: bytes,
        each,
    }
}

/// The GPU's answer.
pub fn on_gpu(gpu: &Context, case: &Input, layout: Layout) -> Result<Answer, String> {
    limited_on_gpu(gpu, case, Limit::Norm(case.clip), layout)
}

/// The GPU's answer with any limit.
pub fn limited_on_gpu(gpu: &Context, case: &Input, limit: Limit, layout: Layout) -> Result<Answer, String> {
    let mut order: Vec<usize> = (0..case.tensors.len()).collect();
    if layout == Layout::Reversed {
        order.reverse();
    }
    let places = place(case, &order, layout);
    let buffers: Vec<wgpu::Buffer> = images(case, &places).iter().map(|i| upload(gpu, i)).collect();
    let mut builder = GradSet::builder(&case.name);
    for place in &places {
        let (format, bytes) = &case.tensors[place.tensor];
        builder = builder.tensor(
            format!("tensor {}", place.tensor),
            TensorSlice {
                buffer: &buffers[place.buffer],
                offset: place.offset as u64,
                len: bytes.len() as u64 / format.size(),
                format: *format,
            },
        );
    }
    if layout == Layout::TinyLimits {
        builder = builder.plan_limits(tiny(gpu));
    }
    let set = builder.build(gpu).map_err(|e| e.to_string())?;
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    limit.record(&set, &mut encoder, case.scale).map_err(|e| e.to_string())?;
    gpu.queue().submit([encoder.finish()]);
    let report = set.read_report().map_err(|e| e.to_string())?;
    let clips = limit.read_each(&set).map_err(|e| e.to_string())?;

    let mut tensors = vec![Vec::new(); places.len()];
    let mut nonfinite = vec![gradclip::Nonfinite::default(); places.len()];
    let after: Vec<Vec<u8>> = buffers.iter().map(|b| download(gpu, b)).collect::<Result<_, _>>()?;
    let mut gaps = after.clone();
    for place in &places {
        let range = place.offset..place.offset + case.tensors[place.tensor].1.len();
        tensors[place.tensor] = after[place.buffer][range.clone()].to_vec();
        nonfinite[place.tensor] = report.nonfinite_in(&format!("tensor {}", place.tensor));
        gaps[place.buffer][range].fill(GAP);
    }
    if gaps.iter().flatten().any(|&byte| byte != GAP) {
        return Err("bytes outside the tensors changed".into());
    }
    let mut each: Vec<(usize, TensorClip)> = order.into_iter().zip(clips).collect();
    each.sort_by_key(|&(tensor, _)| tensor);
    Ok(Answer {
        found_inf: report.found_inf,
        overflow: report.overflow,
        norm: report.total_norm.unwrap_or(0.0),
        coefficient: report.coefficient.unwrap_or(0.0),
        factor: report.factor.unwrap_or(0.0),
        nonfinite,
        tensors,
        each: each.into_iter().map(|(_, clip)| clip).collect(),
    })
}

/// Two windows a dispatch, windows and tiles as small as they get, few workgroups: every cut happens.
fn tiny(gpu: &Context) -> PlanLimits {
    let mut limits = PlanLimits::from_device(gpu.device());
    limits.window_bytes = limits.window_align.max(256);
    limits.windows_per_dispatch = 2.min(limits.windows_per_dispatch);
    limits.groups_per_dimension = 3;
    limits.elements_per_dispatch = 100;
    limits.tile_words = 7;
    limits
}

struct Place {
    tensor: usize,
    buffer: usize,
    offset: usize,
}

fn place(case: &Input, order: &[usize], layout: Layout) -> Vec<Place> {
    let mut end = 0;
    let mut placed = Vec::new();
    for (i, &tensor) in order.iter().enumerate() {
        if matches!(layout, Layout::OwnBuffers | Layout::Reversed) {
            placed.push(Place { tensor, buffer: i, offset: 0 });
            continue;
        }
        // 4, 12, 20 ... bytes after the last tensor, never at a multiple of 8.
        let gap = 4 + 8 * (i % 5);
        let offset = (end + gap) / 8 * 8 + 4;
        end = offset + case.tensors[tensor].1.len().next_multiple_of(4);
        placed.push(Place { tensor, buffer: 0, offset });
    }
    placed
}

/// The bytes of every buffer.
fn images(case: &Input, places: &[Place]) -> Vec<Vec<u8>> {
    let mut images: Vec<Vec<u8>> = Vec::new();
    for place in places {
        let bytes = &case.tensors[place.tensor].1;
        if images.len() <= place.buffer {
            images.resize(place.buffer + 1, Vec::new());
        }
        let image = &mut images[place.buffer];
        let end = place.offset + bytes.len();
        image.resize(end.next_multiple_of(4).max(4), GAP);
        image[place.offset..end].copy_from_slice(bytes);
    }
    images
}

/// A storage buffer with these bytes.
pub fn upload(gpu: &Context, bytes: &[u8]) -> wgpu::Buffer {
    use wgpu::util::DeviceExt as _;
    gpu.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: Some("gradients"),
        contents: bytes,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
    })
}

/// The bytes of a buffer, after everything submitted so far.
pub fn download(gpu: &Context, buffer: &wgpu::Buffer) -> Result<Vec<u8>, String> {
    let staging = gpu.device().create_buffer(&wgpu::BufferDescriptor {
        label: Some("download"),
        size: buffer.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
    gpu.queue().submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |_| {});
    gpu.device().poll(wgpu::PollType::wait_indefinitely()).map_err(|e| e.to_string())?;
    let bytes = staging.get_mapped_range(..).map_err(|e| e.to_string())?.to_vec();
    Ok(bytes)
}

/// The first difference, in words a person can act on; `None`: equal on every bit.
pub fn difference(got: &Answer, want: &Answer, formats: &[Format]) -> Option<String> {
    if (got.found_inf, got.overflow) != (want.found_inf, want.overflow) {
        return Some(format!(
            "found_inf {} overflow {}, expected {} {}",
            got.found_inf, got.overflow, want.found_inf, want.overflow
        ));
    }
    for (what, got, want) in [
        ("norm", got.norm, want.norm),
        ("coefficient", got.coefficient, want.coefficient),
        ("factor", got.factor, want.factor),
    ] {
        if got.to_bits() != want.to_bits() {
            let (g, w) = (got.to_bits(), want.to_bits());
            return Some(format!("{what} {got:e} (f64 {g:016x}), expected {want:e} (f64 {w:016x})"));
        }
    }
    let each = got.each.iter().zip(&want.each).enumerate();
    if let Some((t, (got, want))) = each.into_iter().find(|(_, (got, want))| got != want) {
        return Some(format!("tensor {t}: {got:?}, expected {want:?}"));
    }
    if got.each.len() != want.each.len() {
        return Some(format!("{} tensors by themselves, expected {}", got.each.len(), want.each.len()));
    }
    for (t, &format) in formats.iter().enumerate() {
        if got.nonfinite[t] != want.nonfinite[t] {
            return Some(format!("tensor {t}: {}, expected {}", got.nonfinite[t], want.nonfinite[t]));
        }
        let size = format.size() as usize;
        let pairs = got.tensors[t].chunks(size).zip(want.tensors[t].chunks(size));
        if let Some((i, (g, w))) = pairs.enumerate().find(|(_, (g, w))| g != w) {
            return Some(format!("tensor {t} element {i}: {}, expected {}", hex(g), hex(w)));
        }
        if got.tensors[t].len() != want.tensors[t].len() {
            return Some(format!("tensor {t}: {} bytes", got.tensors[t].len()));
        }
    }
    None
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
}

/// What became of one adapter.
#[derive(Debug, Default)]
pub struct Tally {
    pub checks: usize,
    pub mismatches: usize,
    pub first: Option<String>,
}

impl Tally {
    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            checks: self.checks + other.checks,
            mismatches: self.mismatches + other.mismatches,
            first: self.first.or(other.first),
        }
    }

    pub fn note(&mut self, what: impl FnOnce() -> String, outcome: Result<Option<String>, String>) {
        self.checks += 1;
        let wrong = match outcome {
            Ok(None) => return,
            Ok(Some(difference)) => difference,
            Err(error) => error,
        };
        self.mismatches += 1;
        if self.first.is_none() {
            self.first = Some(format!("{}: {wrong}", what()));
        }
    }
}

/// Every case in every layout against its answer; the reference once per case.
pub fn run(gpu: &Context, cases: &[Step]) -> Tally {
    let mut tally = Tally::default();
    for case in cases {
        let input = &case.input;
        let formats: Vec<Format> = input.tensors.iter().map(|t| t.0).collect();
        let reference = difference(&limited_on_reference(input, case.limit), &case.expect, &formats);
        tally.note(|| format!("{}, reference", input.name), Ok(reference));
        for layout in Layout::ALL {
            let outcome = limited_on_gpu(gpu, input, case.limit, layout)
                .map(|got| difference(&got, &case.expect, &formats));
            tally.note(|| format!("{}, {layout:?}", input.name), outcome);
        }
    }
    tally
}
