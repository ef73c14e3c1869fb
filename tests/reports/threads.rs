//! Reports read on other threads than the one that trains.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use gradclip::{Error, UpdateReport, wgpu};

use crate::common::{adapters, gpus};
use crate::rig::{Optimizer, PATIENCE, encoder, next, record, steady, submit, update};

#[test]
fn a_reader_on_another_thread_sees_every_report() {
    const STEPS: u16 = 200;
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 4), Optimizer::of_one(gpu, "adamw"));
        let done = AtomicBool::new(false);
        let seen = std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                let mut seen: Vec<UpdateReport> = Vec::new();
                loop {
                    let last = done.load(Ordering::Acquire);
                    while let Some(report) = scaler.poll_report().unwrap() {
                        seen.push(report);
                    }
                    if last {
                        break;
                    }
                    std::thread::yield_now();
                }
                while let Some(report) = scaler.wait_report(PATIENCE).unwrap() {
                    seen.push(report);
                }
                seen
            });
            for i in 0..STEPS {
                optimizer.put(gpu, 8.0 * f32::from(i));
                submit(gpu, update(gpu, &scaler, &optimizer));
            }
            done.store(true, Ordering::Release);
            reader.join().unwrap()
        });
        // What the reader was too slow for is counted.
        assert_eq!(seen.len() as u64 + scaler.lost_reports(), u64::from(STEPS));
        assert!(seen.is_sorted_by(|a, b| a.update < b.update));
        for report in &seen {
            let i = report.update;
            assert_eq!(report.steps[0].report.total_norm, Some(i as f64), "update {i}");
            assert_eq!(u64::from(report.scaler.updates), i + 1);
            assert!(report.steps[0].ran);
        }
    }
}

/// A thread that polls the device, as an engine's own does.
fn with_poller<T>(gpu: &gradclip::Context, work: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let _ = gpu.device().poll(wgpu::PollType::Poll);
                std::thread::yield_now();
            }
        });
        let _stop = Stop(&stop);
        work()
    })
}

#[test]
fn the_future_resolves_where_another_thread_polls() {
    for gpu in gpus() {
        let gpu = &gpu.context;
        let (scaler, optimizer) = (steady(gpu, 2), Optimizer::of_one(gpu, "adamw"));
        with_poller(gpu, || {
            for i in 0..10u8 {
                optimizer.put(gpu, 8.0 * f32::from(i));
                submit(gpu, update(gpu, &scaler, &optimizer));
                let report = pollster::block_on(scaler.next_report()).unwrap();
                assert_eq!((report.update, report.steps[0].report.total_norm), (i.into(), Some(i.into())));
            }
            drop(update(gpu, &scaler, &optimizer));
            assert_eq!(pollster::block_on(scaler.next_report()), Err(Error::Dropped { update: 10 }));
        });
    }
}

/// Asked for before there is anything to wait for, and wanted by two at once.
#[test]
fn futures_that_were_first_share_what_comes() {
    let gpu = &gpus()[0].context;
    let (scaler, optimizer) = (steady(gpu, 8), Optimizer::of_one(gpu, "adamw"));
    with_poller(gpu, || {
        let mut seen = std::thread::scope(|threads| {
            let readers = [(); 2].map(|()| {
                threads.spawn(|| [(); 3].map(|()| pollster::block_on(scaler.next_report()).unwrap().update))
            });
            for _ in 0..6 {
                submit(gpu, update(gpu, &scaler, &optimizer));
            }
            readers.map(|reader| reader.join().unwrap()).concat()
        });
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    });
}

/// A future that is given up takes no report with it.
#[test]
fn a_dropped_future_loses_nothing() {
    use std::future::Future as _;
    let gpu = &gpus()[0].context;
    let (scaler, optimizer) = (steady(gpu, 2), Optimizer::of_one(gpu, "adamw"));
    {
        let mut future = std::pin::pin!(scaler.next_report());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    submit(gpu, update(gpu, &scaler, &optimizer));
    assert_eq!(next(&scaler).update, 0);
}

/// A thread that polls collects all that is done, then calls back one after the other. While it is held up in between,
/// the report is there all the same. On a device of its own, so that no other test's thread polls.
#[test]
fn waiting_does_not_depend_on_the_thread_that_polls() {
    for adapter in adapters::named("all").unwrap() {
        let gpu = &adapters::open(&adapter).unwrap().context;
        let (scaler, optimizer) = (steady(gpu, 2), Optimizer::of_one(gpu, "adamw"));
        let other = gpu.device().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 4,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let (held_up, is_held_up) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let mut encoder = encoder(gpu);
            encoder.copy_buffer_to_buffer(&optimizer.page, 4, &other, 0, 4);
            encoder.map_buffer_on_submit(&other, wgpu::MapMode::Read, .., move |_| {
                held_up.send(()).unwrap();
                let _ = may_go_on.recv();
            });
            let step = record(&scaler, &optimizer, &mut encoder);
            scaler.update(&mut encoder, [step]).unwrap();
            let poller = threads.spawn(move || {
                submit(gpu, encoder);
                gpu.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
            });
            is_held_up.recv().unwrap();
            let report = scaler.wait_report(PATIENCE);
            drop(go_on);
            assert_eq!(report.unwrap().expect("the GPU is done").update, 0);
            poller.join().unwrap();
        });
        // The news that came late belong to no other report.
        submit(gpu, update(gpu, &scaler, &optimizer));
        assert_eq!(next(&scaler).update, 1);
        assert_eq!(scaler.poll_report(), Ok(None));
    }
}
