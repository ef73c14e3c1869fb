//! How far the parameters really moved: the norm of (after - before), by the same exact arithmetic as the gradients'.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::gpu::context::Shared;
use crate::gpu::guard::guarded;
use crate::gpu::make::{empty, filled, group, part};
use crate::gpu::shader::{Kernel, THREADS};
use crate::plan::check_set;
use crate::{Context, Error, Format, GradSet, Limit, Report, TensorSlice};

/// Elements of a piece: the scratch of one stays below WebGPU's 128 MiB a binding.
const PIECE_ELEMENTS: u64 = 1 << 24;

/// The same on this device: even, so that a piece of 16-bit elements starts at a word.
fn piece_elements(shared: &Shared) -> Result<u64, Error> {
    let limits = shared.device.limits();
    let align = u64::from(limits.min_storage_buffer_offset_alignment);
    let has = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
    let most = PIECE_ELEMENTS.min(has.saturating_sub(align) / 8 * 2);
    if most == 0 {
        let limit = "max_storage_buffer_binding_size";
        return Err(Error::DeviceLimit { limit, needed: align + 8, has });
    }
    Ok(most)
}

/// Measures the L2 norm of what a set of parameters changes by between two points of an encoder, for a log.
///
/// It keeps an f32 copy of the parameters: 4 bytes an element. The difference of each element is rounded once to f32,
/// to nearest even, subnormals kept; the norm of the differences is that of a step ([`crate::reference`]).
#[derive(Debug)]
pub struct DeltaNorm {
    context: Context,
    pieces: Vec<Piece>,
    norm: GradSet,
    /// Whether a `record_before` waits for its `record_after`.
    kept: AtomicBool,
}

#[derive(Debug)]
struct Piece {
    pipeline: wgpu::ComputePipeline,
    keep: wgpu::BindGroup,
    difference: wgpu::BindGroup,
    groups: (u32, u32),
}

impl DeltaNorm {
    /// Measures these parameters, given by name. Their buffers need [`wgpu::BufferUsages::STORAGE`]; they are only read. For
    /// an optimizer that writes them in place: [`DeltaNorm::between`] is for one that writes elsewhere.
    ///
    /// # Errors
    /// As [`GradSetBuilder::build`](crate::GradSetBuilder::build), by the name of the tensor.
    pub fn new<'a>(
        context: &Context,
        name: &str,
        parameters: impl IntoIterator<Item = (String, TensorSlice<'a>)>,
    ) -> Result<Self, Error> {
        Self::between(context, name, parameters.into_iter().map(|(name, slice)| (name, slice, slice)))
    }

    /// Measures parameters that lie in one place before and in another after, given by name: the first is read by
    /// [`DeltaNorm::record_before`], the second by [`DeltaNorm::record_after`].
    ///
    /// # Errors
    /// As [`DeltaNorm::new`]; [`Error::Shape`] if both places of a tensor do not have the same length and format.
    pub fn between<'a>(
        context: &Context,
        name: &str,
        parameters: impl IntoIterator<Item = (String, TensorSlice<'a>, TensorSlice<'a>)>,
    ) -> Result<Self, Error> {
        let shared = &context.shared;
        let mut names = Vec::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (name, from, to) in parameters {
            if (from.len, from.format) != (to.len, to.format) {
                return Err(Error::Shape {
                    tensor: name,
                    expected_len: from.len,
                    expected_format: from.format,
                    len: to.len,
                    format: to.format,
                });
            }
            names.push(name);
            before.push(from);
            after.push(to);
        }
        check_set(&names, &before)?;
        check_set(&names, &after)?;
        let what = format!("delta norm \"{name}\": allocating");
        let most = piece_elements(shared)?;
        let mut pieces = Vec::new();
        let mut scratches = Vec::new();
        for (tensor, (from, to)) in names.iter().zip(before.iter().zip(&after)) {
            for first in (0..from.len).step_by(most as usize) {
                let len = most.min(from.len - first);
                let scratch = guarded(&shared.device, &what, || empty(shared, "gradclip delta", len * 4))?;
                pieces.push(Piece::new(shared, &what, [from, to], first, len, &scratch)?);
                let whole = from.len <= most;
                let name = if whole { tensor.clone() } else { format!("{tensor} from {first}") };
                scratches.push((name, scratch, len));
            }
        }
        let mut norm = GradSet::builder(name);
        for (piece, buffer, len) in &scratches {
            norm = norm.tensor(piece, TensorSlice { buffer, offset: 0, len: *len, format: Format::F32 });
        }
        Ok(Self {
            context: context.clone(),
            pieces,
            norm: norm.build(context)?,
            kept: AtomicBool::new(false),
        })
    }

    /// Records keeping the parameters as they are at this point.
    pub fn record_before(&self, encoder: &mut wgpu::CommandEncoder) {
        self.dispatch(encoder, |piece| &piece.keep);
        self.kept.store(true, Ordering::Release);
    }

    /// Records measuring what they changed by since [`DeltaNorm::record_before`]. Once for each: the copy is used up.
    ///
    /// # Errors
    /// [`Error::NothingKept`] without a `record_before` since the last `record_after`, else as [`GradSet::record`].
    pub fn record_after(&self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        if !self.kept.swap(false, Ordering::AcqRel) {
            return Err(Error::NothingKept { set: self.norm.name().into() });
        }
        self.dispatch(encoder, |piece| &piece.difference);
        self.norm.record_deferred(encoder, 1.0, Limit::none())
    }

    /// The latest measure, after its encoder was submitted: `total_norm` is the norm of the change. `found_inf` if a
    /// parameter was NaN or infinite before or after, or changed by more than f32 holds. Blocks.
    ///
    /// # Errors
    /// As [`GradSet::read_report`].
    pub fn read_report(&self) -> Result<Report, Error> {
        self.norm.read_report()
    }

    /// The context it was made with.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    fn dispatch(&self, encoder: &mut wgpu::CommandEncoder, of: impl Fn(&Piece) -> &wgpu::BindGroup) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("gradclip delta_norm"),
            timestamp_writes: None,
        });
        for piece in &self.pieces {
            pass.set_pipeline(&piece.pipeline);
            pass.set_bind_group(0, of(piece), &[]);
            pass.dispatch_workgroups(piece.groups.0, piece.groups.1, 1);
        }
    }
}

impl Piece {
    /// `first`: first element of the piece in its tensor.
    fn new(
        shared: &Shared,
        what: &str,
        places: [&TensorSlice<'_>; 2],
        first: u64,
        len: u64,
        scratch: &wgpu::Buffer,
    ) -> Result<Self, Error> {
        let limits = shared.device.limits();
        let pipeline = shared.pipeline(Kernel::DeltaNorm(places[0].format))?;
        let align = u64::from(limits.min_storage_buffer_offset_alignment);
        let bind = |slice: &TensorSlice<'_>, difference: u32| {
            let at = slice.offset + first * slice.format.size();
            let start = at / align * align;
            let end = at + slice.format.words(len) * 4;
            let piece = [((at - start) / 4) as u32, 0, len as u32, difference];
            let usage = wgpu::BufferUsages::UNIFORM;
            let piece = filled(shared, "gradclip piece", usage, bytemuck::cast_slice(&piece));
            let window = part(slice.buffer, start, end - start);
            let resources = [piece.as_entire_binding(), window, scratch.as_entire_binding()];
            group(shared, &shared.layouts.delta_norm, &resources)
        };
        let [before, after] = places;
        let (keep, difference) = guarded(&shared.device, what, || (bind(before, 0), bind(after, 1)))?;
        let groups = (len as u32).div_ceil(THREADS);
        let x = groups.min(limits.max_compute_workgroups_per_dimension);
        Ok(Self { pipeline, keep, difference, groups: (x, groups.div_ceil(x)) })
    }
}
