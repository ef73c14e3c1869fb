//! A device that is lost in mid-training: errors, no hang, no panic.
//!
//! wgpu tells nobody but the device's own callback that the device is lost, and from then on ignores what is recorded.
//! So a call that only records may succeed; one that needs a new buffer or an answer from the GPU must say what is wrong.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::runner::upload;
use common::{adapters, f32s};
use gradclip::{
    ClipNorm, Context, DeltaNorm, Error, Format, GradScaler, GradSet, LossScale, Prepare, Recorded,
    ScalerConfig, ScalerState, Step, TensorSlice, UpdateReport, wgpu,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A training loop on a device of its own.
struct Training {
    gpu: Context,
    page: wgpu::Buffer,
    set: GradSet,
    scaler: GradScaler,
    delta: DeltaNorm,
    uncaptured: Arc<Mutex<Vec<String>>>,
}

/// One on every adapter.
fn all() -> impl Iterator<Item = Training> {
    adapters::named("all").unwrap().into_iter().map(|adapter| Training::on(&adapter))
}

impl Training {
    fn on(adapter: &wgpu::Adapter) -> Self {
        let gpu = adapters::open(adapter).unwrap().context;
        let uncaptured = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&uncaptured);
        gpu.device().on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            seen.lock().unwrap().push(error.to_string())
        }));
        let page = upload(&gpu, &f32s(&[24.0, 32.0]));
        let set = GradSet::builder("adamw").tensor("weight", slice(&page)).build(&gpu).unwrap();
        set.prepare([Prepare::NormAfter, Prepare::TensorNorms]).unwrap();
        let scaler = GradScaler::new(&gpu, ScalerConfig::constant(8.0)).unwrap().with_reports(4);
        let delta = DeltaNorm::new(&gpu, "moved", [("weight".to_string(), slice(&page))]).unwrap();
        Self { gpu, page, set, scaler, delta, uncaptured }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn record(&self, encoder: &mut wgpu::CommandEncoder) -> Result<Step<Recorded>, Error> {
        self.scaler.begin(&self.set)?.unscale().record(encoder)
    }

    fn step(&self) -> Result<(), Error> {
        let mut encoder = self.encoder();
        let step = self.record(&mut encoder)?;
        self.scaler.update(&mut encoder, [step])?;
        self.submit(encoder);
        Ok(())
    }

    /// The engine's own calls: what wgpu says to them is not the crate's.
    fn submit(&self, encoder: wgpu::CommandEncoder) {
        self.assert_quiet();
        self.gpu.queue().submit([encoder.finish()]);
        self.uncaptured.lock().unwrap().clear();
    }

    /// Without a handler each of these would be a panic.
    #[track_caller]
    fn assert_quiet(&self) {
        assert_eq!(*self.uncaptured.lock().unwrap(), Vec::<String>::new());
    }
}

fn slice(page: &wgpu::Buffer) -> TensorSlice<'_> {
    TensorSlice { buffer: page, offset: 0, len: 2, format: Format::F32 }
}

/// It failed, and says that the device is lost, in words that fit a log line.
#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::DeviceLost { what }) => assert!(!what.is_empty() && !what.contains('\n'), "{what:?}"),
        other => panic!("{other:?}"),
    }
}

/// It only recorded: that may succeed.
#[track_caller]
fn may_fail<T: std::fmt::Debug>(result: Result<T, Error>) {
    if result.is_err() {
        fails(result);
    }
}

#[test]
fn every_call_returns_on_a_lost_device() {
    for training in all() {
        training.step().unwrap();
        assert!(training.scaler.wait_report(PATIENCE).unwrap().is_some());
        let mut encoder = training.encoder();
        let open = training.record(&mut encoder).unwrap();
        training.gpu.device().destroy();

        may_fail(training.scaler.update(&mut encoder, [open]));
        may_fail(training.scaler.poll_report());
        may_fail(training.scaler.wait_report(PATIENCE));
        may_fail(training.scaler.begin(&training.set).map(drop));
        fails(training.scaler.state_dict());
        may_fail(training.scaler.load_state_dict(&ScalerState::new(training.scaler.config())));
        fails(GradScaler::new(&training.gpu, ScalerConfig::default()));

        let clip = Some(ClipNorm::new(1.0).unwrap());
        may_fail(training.set.record(&mut encoder, LossScale::ONE, clip));
        may_fail(training.set.record_deferred(&mut encoder, LossScale::ONE, clip));
        fails(training.set.read_report());
        fails(training.set.read_report_timeout(Duration::ZERO));
        fails(pollster::block_on(training.set.read_report_async()));
        let measured = training.scaler.begin(&training.set).unwrap().unscale();
        may_fail(measured.measure_norm_after().record(&mut encoder).map(drop));
        let measured = training.scaler.begin(&training.set).unwrap().unscale();
        may_fail(measured.measure_tensor_norms().record(&mut encoder).map(drop));
        fails(GradSet::builder("other").tensor("weight", slice(&training.page)).build(&training.gpu));

        training.delta.record_before(&mut encoder);
        may_fail(training.delta.record_after(&mut encoder));
        fails(training.delta.read_report());
        fails(DeltaNorm::new(&training.gpu, "moved", [("weight".to_string(), slice(&training.page))]));
        may_fail(Context::new(training.gpu.device(), training.gpu.queue()));

        training.submit(encoder);
        fails(training.scaler.wait_report(PATIENCE));
        let page = training.page.clone();
        may_fail(training.set.rebind(&[slice(&page)]));
        training.assert_quiet();
    }
}

#[test]
fn reports_on_their_way_arrive_or_fail() {
    for training in all() {
        for _ in 0..3 {
            training.step().unwrap();
        }
        training.gpu.device().destroy();
        for update in 0..3 {
            match training.scaler.wait_report(PATIENCE) {
                Ok(Some(report)) => assert_eq!(report.update, update),
                result => fails(result),
            }
        }
        assert_eq!(training.scaler.wait_report(PATIENCE), Ok(None));
        assert_eq!(training.scaler.poll_report(), Ok(None));
        training.assert_quiet();
    }
}

/// An engine that notices late goes on for a while. Each update is told of, in one way or another.
#[test]
fn training_on_is_harmless() {
    for training in all() {
        let (mut reports, mut errors, mut refused) = (0, 0, 0);
        for i in 0..50 {
            if i == 10 {
                training.gpu.device().destroy();
            }
            refused += u64::from(training.step().is_err());
            if i % 2 == 0 {
                match training.scaler.poll_report() {
                    Ok(report) => reports += u64::from(report.is_some()),
                    Err(error) => {
                        fails::<UpdateReport>(Err(error));
                        errors += 1;
                    }
                }
            }
        }
        // Those still in the ring.
        for _ in 0..4 {
            match training.scaler.wait_report(PATIENCE) {
                Ok(report) => reports += u64::from(report.is_some()),
                Err(_) => errors += 1,
            }
        }
        assert_eq!(training.scaler.wait_report(PATIENCE), Ok(None));
        assert!(errors > 0);
        assert_eq!(reports + errors + refused + training.scaler.lost_reports(), 50);
        training.assert_quiet();
    }
}

/// A log that awaits the next report is woken up, if the engine polls its device.
#[test]
fn a_future_ends_with_the_device() {
    for training in all() {
        training.step().unwrap();
        training.gpu.device().destroy();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let _ = training.gpu.device().poll(wgpu::PollType::Poll);
                    std::thread::yield_now();
                }
            });
            let result = pollster::block_on(training.scaler.next_report());
            done.store(true, Ordering::Release);
            may_fail(result);
        });
        training.assert_quiet();
    }
}

/// Everything can still be dropped, in the middle of a step too.
#[test]
fn everything_can_be_dropped() {
    for training in all() {
        training.step().unwrap();
        let mut encoder = training.encoder();
        let open = training.record(&mut encoder).unwrap();
        training.gpu.device().destroy();
        drop(open);
        drop(encoder);
        assert!(training.scaler.begin(&training.set).is_ok());
        let uncaptured = Arc::clone(&training.uncaptured);
        drop(training);
        assert_eq!(*uncaptured.lock().unwrap(), Vec::<String>::new());
    }
}
