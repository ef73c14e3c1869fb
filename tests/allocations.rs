//! Recording a step allocates nothing on the heap but what wgpu does for the same commands.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use gradclip::{ClipNorm, Context, Format, GradSet, Limit, LossScale, TensorSlice, Unscale, wgpu};
use wgpu::util::{BufferInitDescriptor, DeviceExt as _};

/// The system's allocator, and how often each thread asked it for memory.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const TENSORS: u64 = 150;
const ROUNDS: usize = 40;
const WARM: usize = 10;
/// Bytes of the numbers of a step.
const NUMBERS: usize = 76;

/// Allocations of this thread while `record` records, in each round of a steady state, sorted.
fn count(gpu: &Context, mut record: impl FnMut(&mut wgpu::CommandEncoder, usize)) -> Vec<u64> {
    let mut counts = Vec::with_capacity(ROUNDS);
    for round in 0..WARM + ROUNDS {
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let before = COUNT.get();
        record(&mut encoder, round);
        let allocated = COUNT.get() - before;
        if round >= WARM {
            counts.push(allocated);
        }
        gpu.queue().submit([encoder.finish()]);
        gpu.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
    }
    counts.sort_unstable();
    counts
}

/// The commands of a step as an engine would record them, with kernels that do nothing.
struct ByHand {
    queue: wgpu::Queue,
    numbers: wgpu::Buffer,
    /// To fetch a word, to read and to write gradients.
    plain: [wgpu::ComputePipeline; 3],
    decide: wgpu::ComputePipeline,
    /// One of its own for each place: what is set already, wgpu does not record again.
    storage: Vec<wgpu::BindGroup>,
    dynamic: wgpu::BindGroup,
    uniform: wgpu::BindGroup,
}

impl ByHand {
    fn new(gpu: &Context) -> Self {
        use wgpu::BufferUsages as Usage;
        let device = gpu.device();
        let layout = |ty, has_dynamic_offset| {
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &[wgpu::BindGroupLayoutEntry {
                    binding: 0,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
                    count: None,
                }],
            })
        };
        let storage = layout(wgpu::BufferBindingType::Storage { read_only: false }, false);
        let dynamic = layout(wgpu::BufferBindingType::Uniform, true);
        let uniform = layout(wgpu::BufferBindingType::Uniform, false);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl("@compute @workgroup_size(1) fn main() {}".into()),
        });
        let pipeline = |groups: &[Option<&wgpu::BindGroupLayout>]| {
            let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: groups,
                immediate_size: 0,
            });
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: Default::default(),
                cache: None,
            })
        };
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 65_536,
                usage,
                mapped_at_creation: false,
            })
        };
        let group = |layout: &wgpu::BindGroupLayout, buffer: &wgpu::Buffer| {
            let size = wgpu::BufferSize::new(256);
            let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size });
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout,
                entries: &[wgpu::BindGroupEntry { binding: 0, resource }],
            })
        };
        let numbers = buffer(Usage::UNIFORM | Usage::COPY_DST);
        Self {
            queue: gpu.queue().clone(),
            plain: [(); 3].map(|()| pipeline(&[Some(&storage), Some(&storage)])),
            decide: pipeline(&[Some(&storage), Some(&dynamic), Some(&uniform)]),
            storage: (0..11).map(|_| group(&storage, &buffer(Usage::STORAGE))).collect(),
            dynamic: group(&dynamic, &numbers),
            uniform: group(&uniform, &buffer(Usage::UNIFORM)),
            numbers,
        }
    }

    /// `words`: numbers that a kernel fetches from buffers first. `write`: the gradients are written.
    fn record(&self, encoder: &mut wgpu::CommandEncoder, words: usize, write: bool) {
        let kept = Arc::clone(KEPT.get_or_init(|| Arc::new(())));
        self.queue.write_buffer(&self.numbers, 0, &[0; NUMBERS]);
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("by hand"),
            timestamp_writes: None,
        });
        let [fetch, read, change] = &self.plain;
        let [head, partials, gradients, decision, factor, changed, of_words @ ..] = &self.storage[..] else {
            panic!("eleven groups")
        };
        for word in &of_words[..words] {
            pass.set_pipeline(fetch);
            pass.set_bind_group(0, word, &[]);
            pass.set_bind_group(1, head, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        let over_gradients = |pass: &mut wgpu::ComputePass<'_>,
                              pipeline: &wgpu::ComputePipeline,
                              own: &wgpu::BindGroup,
                              gradients: &wgpu::BindGroup| {
            pass.set_bind_group(0, own, &[]);
            pass.set_pipeline(pipeline);
            pass.set_bind_group(1, gradients, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        };
        over_gradients(&mut pass, read, partials, gradients);
        pass.set_pipeline(&self.decide);
        pass.set_bind_group(0, decision, &[]);
        pass.set_bind_group(1, &self.dynamic, &[0]);
        pass.set_bind_group(2, &self.uniform, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        if write {
            over_gradients(&mut pass, change, factor, changed);
        }
        // Gives the room of the numbers back.
        pass.on_submitted_work_done(move || drop(kept));
    }
}

static KEPT: std::sync::OnceLock<Arc<()>> = std::sync::OnceLock::new();

#[test]
fn recording_allocates_what_wgpu_does_and_no_more() {
    for gpu in common::gpus() {
        let label = common::adapters::label(&gpu.info);
        let gpu = &gpu.context;
        let page = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: TENSORS * 4096,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        });
        let set = (0..TENSORS)
            .fold(GradSet::builder("optimizer"), |builder, i| {
                let slice = TensorSlice { buffer: &page, offset: i * 4096, len: 1024, format: Format::F32 };
                builder.tensor(i.to_string(), slice)
            })
            .build(gpu)
            .unwrap();
        assert_eq!(set.plan().dispatches.len(), 1, "what is recorded by hand is one");
        let words = gpu.device().create_buffer_init(&BufferInitDescriptor {
            label: None,
            contents: bytemuck::cast_slice(&[1024f32, 2.0, 1.0, 1e-6, 1e30]),
            usage: wgpu::BufferUsages::STORAGE,
        });
        let [scale, divisor, max_norm, eps, most] = [0, 4, 8, 12, 16].map(|at| gpu.word(&words, at).unwrap());
        let (loss_scale, clip) = (LossScale::new(1024.0).unwrap(), ClipNorm::new(1.0).unwrap());

        let by_hand = ByHand::new(gpu);
        let hand = |words, write| count(gpu, |encoder, _| by_hand.record(encoder, words, write));
        let cases = [
            ("a constant limit", count(gpu, |e, _| set.record(e, loss_scale, clip).unwrap()), hand(0, true)),
            (
                "a limit that changes",
                count(gpu, |e, round| set.record(e, 1024.0, Limit::norm(round as f32)).unwrap()),
                hand(0, true),
            ),
            (
                "five words",
                count(gpu, |e, _| {
                    let limit = Limit::norm(&max_norm).eps(&eps).skip_above(&most);
                    set.record(e, Unscale::by(&scale).divide_by(&divisor), limit).unwrap();
                }),
                hand(5, true),
            ),
            (
                "deferred",
                count(gpu, |e, _| set.record_deferred(e, loss_scale, clip).unwrap()),
                hand(0, false),
            ),
        ];
        for (case, own, hand) in cases {
            let of = |counts: &[u64]| (counts[ROUNDS / 2], counts[0], counts[ROUNDS - 1]);
            println!(
                "{label}, {case}: {:?} allocations, by hand {:?} (median, least, most)",
                of(&own),
                of(&hand)
            );
            assert_eq!(
                (own[0], own[ROUNDS / 2]),
                (hand[0], hand[ROUNDS / 2]),
                "{label}, {case}: {own:?} {hand:?}"
            );
        }
    }
}
