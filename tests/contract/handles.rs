//! Handles that fit an engine: shapes that have to compile, and run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradclip::{
    Accumulating, Context, Error, GradScaler, GradSet, Joint, Limit, Prepare, Recorded, Report, ScalerConfig,
    Step, wgpu,
};

use crate::support::{Rig, gpus, scaler, settle, slice};

/// Open steps in a struct; begin, backward and finish as methods.
struct Engine {
    scaler: GradScaler,
    set: GradSet,
    open: Option<Step<Accumulating>>,
}

impl Engine {
    fn begin(&mut self) -> Result<(), Error> {
        self.open = Some(self.scaler.begin(&self.set)?);
        Ok(())
    }

    fn backward(&mut self) {
        if let Some(open) = &mut self.open {
            open.microbatch();
        }
    }

    fn finish(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        let Some(open) = self.open.take() else { return Err(Error::NoSteps) };
        let step = open.unscale().limit(Limit::norm(1.0)).record(encoder)?;
        self.scaler.update(encoder, [step])
    }
}

#[test]
fn open_steps_in_a_struct() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        let scaler = scaler(&gpu.context, ScalerConfig::disabled()).with_reports(2);
        let mut engine = Engine { scaler, set: rig.set.clone(), open: None };
        for _ in 0..3 {
            engine.begin().unwrap();
            engine.backward();
            engine.backward();
            rig.run(|encoder| engine.finish(encoder).unwrap());
            let report = engine.scaler.wait_report(Duration::from_secs(60)).unwrap().unwrap();
            assert_eq!(report.steps[0].microbatches, 2);
        }
        assert_eq!(rig.set.state().unwrap().steps, 3, "{}", gpu.info.name);
    }
}

/// An optimizer behind `dyn` that owns its set.
trait Optimizer: Send {
    fn step(
        &mut self,
        scaler: &GradScaler,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<Step<Recorded>, Error>;
}

struct Sgd(GradSet);

impl Optimizer for Sgd {
    fn step(
        &mut self,
        scaler: &GradScaler,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<Step<Recorded>, Error> {
        scaler.begin(&self.0)?.unscale().record(encoder)
    }
}

#[test]
fn an_optimizer_behind_dyn() {
    for gpu in gpus() {
        let rigs = ["a", "b"].map(|name| Rig::new(&gpu.context, name, &[2.0]));
        let mut all: Vec<Box<dyn Optimizer>> =
            rigs.iter().map(|rig| Box::new(Sgd(rig.set.clone())) as Box<dyn Optimizer>).collect();
        let scaler = scaler(&gpu.context, ScalerConfig::constant(2.0));
        rigs[0].run(|encoder| {
            let steps: Vec<_> = all.iter_mut().map(|one| one.step(&scaler, encoder).unwrap()).collect();
            scaler.update(encoder, steps).unwrap();
        });
        assert_eq!(rigs.map(|rig| rig.gradients()[0]), [1.0, 1.0], "{}", gpu.info.name);
    }
}

/// A set shared with a logging thread, which gets the latest complete report while the next step is recorded and the set
/// is rebound.
#[test]
fn a_logging_thread_never_hears_that_nothing_ran() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        let other = Rig::new(&gpu.context, "other", &[3.0, 4.0]);
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::norm(1.0)).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let set = rig.set.clone();
            let done = &done;
            let logger = scope.spawn(move || {
                let (mut reports, mut last) = (0u32, 0);
                while !done.load(Ordering::Acquire) || reports == 0 {
                    let report = set.read_report().unwrap();
                    assert!(report.run >= last);
                    (reports, last) = (reports + 1, report.run);
                }
                reports
            });
            for i in 0..50 {
                let page = if i % 2 == 0 { &other.page } else { &rig.page };
                rig.set.rebind(&[slice(page, 0, 2)]).unwrap();
                let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
                rig.set.record(&mut encoder, 1.0, Limit::norm(1.0)).unwrap();
                std::thread::sleep(Duration::from_millis(1));
                gpu.context.queue().submit([encoder.finish()]);
            }
            done.store(true, Ordering::Release);
            assert!(logger.join().unwrap() > 0);
        });
        assert_eq!(u64::from(rig.set.read_report().unwrap().run), rig.set.recorded(), "{}", gpu.info.name);
    }
}

/// An async block that owns its report.
#[test]
fn an_async_block_owns_its_report() {
    fn spawned(set: &GradSet) -> impl Future<Output = Result<Report, Error>> + Send + 'static {
        let report = set.read_report_async();
        async move {
            let report = report.await?;
            Ok(report)
        }
    }
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        rig.run(|encoder| rig.set.record(encoder, 1.0, Limit::none()).unwrap());
        let future = spawned(&rig.set);
        drop(rig);
        settle(&gpu.context);
        assert_eq!(pollster::block_on(future).unwrap().total_norm, Some(5.0), "{}", gpu.info.name);
    }
}

#[test]
fn handles_are_send_sync_and_clone() {
    fn handle<T: Send + Sync + Clone + 'static>() {}
    fn step<T: Send + Sync + 'static>() {}
    handle::<GradSet>();
    handle::<GradScaler>();
    handle::<Joint>();
    handle::<Context>();
    step::<Step<Accumulating>>();
    step::<Step<Recorded>>();
}

#[test]
fn a_leaked_guard_can_be_given_up() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        let scaler = scaler(&gpu.context, ScalerConfig::disabled());
        let lost = scaler.begin(&rig.set).unwrap();
        assert!(matches!(scaler.begin(&rig.set), Err(Error::StepOpen { .. })));
        assert!(scaler.give_up("adamw") && !scaler.give_up("adamw") && !scaler.give_up("sgd"));
        let new = scaler.begin(&rig.set).unwrap();
        let mut encoder = gpu.context.device().create_command_encoder(&Default::default());
        assert!(matches!(lost.unscale().record(&mut encoder), Err(Error::GivenUp { .. })));
        // And its end does not close the new one.
        assert!(matches!(scaler.begin(&rig.set), Err(Error::StepOpen { .. })));
        let step = new.unscale().record(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
    }
}

/// p33: with a pass open on the encoder, the step goes into the pass.
#[test]
fn p33_recording_into_an_open_pass() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[24.0, 32.0]);
        let scaler = scaler(&gpu.context, ScalerConfig::constant(8.0));
        let step = scaler.begin(&rig.set).unwrap().unscale().limit(Limit::norm(1.0).eps(0.0));
        rig.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
            let step = step.record_in(&mut pass).unwrap();
            drop(pass);
            scaler.update(encoder, [step]).unwrap();
        });
        assert_eq!(rig.gradients(), [0.6, 0.8], "{}", gpu.info.name);
        rig.put(&[24.0, 32.0]);
        rig.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            rig.set.record_in(&mut pass, 8.0, Limit::value(3.5)).unwrap();
        });
        assert_eq!(rig.gradients(), [3.0, 3.5]);
    }
}

/// What was prepared outlives a rebind that plans anew.
#[test]
fn rebinding_keeps_what_was_prepared() {
    for gpu in gpus() {
        let rig = Rig::new(&gpu.context, "adamw", &[3.0, 4.0]);
        let bare = GradSet::builder("bare").tensor("w", slice(&rig.page, 0, 1)).build(&gpu.context).unwrap();
        bare.prepare([Prepare::EachTensor]).unwrap();
        bare.rebind(&[slice(&rig.page, 4, 1)]).unwrap();
        rig.run(|encoder| bare.record(encoder, 1.0, Limit::value(0.5)).unwrap());
        assert_eq!(rig.gradients(), [3.0, 0.5], "{}", gpu.info.name);
    }
}
