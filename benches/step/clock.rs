//! How long the GPU takes for what was recorded.

use std::time::{Duration, Instant};

use gradclip::{Context, wgpu};

/// Measures submissions on one device.
pub struct Clock {
    pub gpu: Context,
    stamps: Option<Stamps>,
}

/// A pair of timestamps and the way back to the host.
struct Stamps {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    nanoseconds: f64,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Recording, before `finish`.
    pub record: Duration,
    /// `CommandEncoder::finish`.
    pub finish: Duration,
    /// Submission until the GPU is done.
    pub wall: Duration,
    /// From the first command to the last on the GPU's own clock, if it gave a believable answer.
    pub gpu: Option<Duration>,
}

const PAIR: u64 = 16;

impl Clock {
    pub fn new(gpu: &Context) -> Self {
        let device = gpu.device();
        let stamps = device.features().contains(wgpu::Features::TIMESTAMP_QUERY).then(|| {
            let buffer = |usage| {
                device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("timestamps"),
                    size: PAIR,
                    usage,
                    mapped_at_creation: false,
                })
            };
            Stamps {
                set: device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("timestamps"),
                    ty: wgpu::QueryType::Timestamp,
                    count: 2,
                }),
                resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
                staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
                nanoseconds: f64::from(gpu.queue().get_timestamp_period()),
            }
        });
        Self { gpu: gpu.clone(), stamps }
    }

    /// Records, submits, waits.
    pub fn time(
        &self,
        record: impl FnOnce(&mut wgpu::CommandEncoder) -> Result<(), gradclip::Error>,
    ) -> Result<Timing, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let mut encoder =
            self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.stamp(&mut encoder, 0);
        let start = Instant::now();
        record(&mut encoder).map_err(|e| text(&e))?;
        let recorded = start.elapsed();
        self.stamp(&mut encoder, 1);
        if let Some(stamps) = &self.stamps {
            encoder.resolve_query_set(&stamps.set, 0..2, &stamps.resolved, 0);
            encoder.copy_buffer_to_buffer(&stamps.resolved, 0, &stamps.staging, 0, PAIR);
        }
        let start = Instant::now();
        let commands = encoder.finish();
        let finish = start.elapsed();
        let start = Instant::now();
        self.gpu.queue().submit([commands]);
        self.wait()?;
        let wall = start.elapsed();
        Ok(Timing { record: recorded, finish, wall, gpu: self.stamps.as_ref().and_then(|s| self.read(s)) })
    }

    pub fn wait(&self) -> Result<(), String> {
        let device = self.gpu.device();
        device.poll(wgpu::PollType::wait_indefinitely()).map(drop).map_err(|e| e.to_string())
    }

    /// An empty pass, since only passes carry timestamps on every backend.
    fn stamp(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        let Some(stamps) = &self.stamps else { return };
        let (begin, end) = if index == 0 { (Some(0), None) } else { (None, Some(1)) };
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &stamps.set,
                beginning_of_pass_write_index: begin,
                end_of_pass_write_index: end,
            }),
        }));
    }

    /// Some drivers answer with zeros, or out of order.
    fn read(&self, stamps: &Stamps) -> Option<Duration> {
        stamps.staging.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait().ok()?;
        let ticks: [u64; 2] = {
            let view = stamps.staging.get_mapped_range(..).ok()?;
            bytemuck::pod_read_unaligned(&view)
        };
        stamps.staging.unmap();
        let [begin, end] = ticks;
        let believable = begin != 0 && end > begin;
        believable.then(|| Duration::from_secs_f64((end - begin) as f64 * stamps.nanoseconds * 1e-9))
    }
}
