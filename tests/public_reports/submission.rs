//! Kind M: order of submission, and reading what the GPU decided.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradclip::{LossScale, wgpu};

use crate::common::adapters;
use crate::support::{
    bytes, clip, each_gpu, encoder, f32_bits, f32_set, f32s, reads, run, scale, step, submit, upload,
};

#[test]
fn m01_two_sets_in_one_encoder_keep_their_limits() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0]), f32s(&[6.0, 8.0])]);
        let (a, b) = (f32_set(gpu, &buffers[..1]), f32_set(gpu, &buffers[1..]));
        let mut encoder = encoder(&gpu.context);
        a.record(&mut encoder, LossScale::ONE, clip(1.0)).unwrap();
        b.record(&mut encoder, LossScale::ONE, clip(5.0)).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        let at = adapters::label(&gpu.info);
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[0.6, 0.8]).1, "{at}");
        assert_eq!(bytes(gpu, &buffers[1]), f32s(&[3.0, 4.0]).1, "{at}");
        assert_eq!(a.read_report().unwrap().total_norm, Some(5.0), "{at}");
        assert_eq!(b.read_report().unwrap().total_norm, Some(10.0), "{at}");
    });
}

/// One set in one encoder: first unscaled by 8, then clipped. A parameter seen by both steps would change the
/// result.
#[test]
fn m01_one_set_twice_in_one_encoder_keeps_each_steps_parameters() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[24.0, 32.0])]);
        let set = f32_set(gpu, &buffers);
        let mut encoder = encoder(&gpu.context);
        set.record(&mut encoder, scale(8.0), None).unwrap();
        set.record(&mut encoder, LossScale::ONE, clip(1.0)).unwrap();
        gpu.context.queue().submit([encoder.finish()]);
        let report = set.read_report().unwrap();
        assert_eq!((report.run, report.scale, report.total_norm), (2, 1.0, Some(5.0)));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[0.6, 0.8]).1, "{}", adapters::label(&gpu.info));
    });
}

/// Two encoders of one set, submitted in the other order than recorded.
#[test]
fn m01_parameters_travel_with_the_encoder() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[24.0, 32.0])]);
        let set = f32_set(gpu, &buffers);
        let (mut first, mut second) = (encoder(&gpu.context), encoder(&gpu.context));
        set.record(&mut second, LossScale::ONE, clip(1.0)).unwrap();
        set.record(&mut first, scale(8.0), None).unwrap();
        gpu.context.queue().submit([first.finish(), second.finish()]);
        assert_eq!(set.read_report().unwrap().total_norm, Some(5.0));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[0.6, 0.8]).1, "{}", adapters::label(&gpu.info));
    });
}

/// More scales in one encoder than a set keeps for reuse, and some of them again.
#[test]
fn m01_many_parameters_in_one_encoder() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[2f32.powi(40)])]);
        let set = f32_set(gpu, &buffers);
        let mut encoder = encoder(&gpu.context);
        let scales: Vec<i32> = (1..=15).chain(14..=15).flat_map(|e| [e, -e]).chain([40]).collect();
        for &exponent in &scales {
            set.record(&mut encoder, scale(2f32.powi(exponent)), None).unwrap();
        }
        gpu.context.queue().submit([encoder.finish()]);
        let report = set.read_report().unwrap();
        assert_eq!((report.run as usize, report.total_norm), (scales.len(), Some(1.0)));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[1.0]).1, "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn m03_many_uploads_before_the_first_submit() {
    let norm = f64::from(f32::from_bits(0x418a_9067));
    each_gpu(|gpu| {
        let buffers = upload(gpu, &vec![f32s(&[1.0]); 300]);
        let set = f32_set(gpu, &buffers);
        assert_eq!(
            run(gpu, &set, LossScale::ONE, None).total_norm,
            Some(norm),
            "{}",
            adapters::label(&gpu.info)
        );
    });
    reads(step("M03", vec![f32s(&[1.0]); 300]).keeps(norm).norm, "17.3205081");
}

/// A thread that nobody polls for: the blocking read polls by itself.
#[test]
fn m04_a_blocking_read_returns_on_a_thread_without_an_event_loop() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        submit(gpu, &set, LossScale::ONE, clip(1.0));
        let norm = std::thread::scope(|scope| scope.spawn(|| set.read_report()).join().unwrap());
        assert_eq!(norm.unwrap().total_norm, Some(5.0), "{}", adapters::label(&gpu.info));
    });
}

/// The other case: a thread that polls now and then, and a future that waits for it.
#[test]
fn m04_an_async_read_resolves_when_the_engine_polls() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        submit(gpu, &set, LossScale::ONE, clip(1.0));
        let done = AtomicBool::new(false);
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    gpu.context.device().poll(wgpu::PollType::Poll).unwrap();
                    std::thread::yield_now();
                }
            });
            let report = pollster::block_on(set.read_report_async());
            done.store(true, Ordering::Release);
            report
        });
        assert_eq!(report.unwrap().total_norm, Some(5.0), "{}", adapters::label(&gpu.info));
    });
}

/// No patience at all: an answer or a timeout at once, and either way the next read has the report.
#[test]
fn m04_a_timeout_loses_nothing() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&vec![1.0; 1 << 20])]);
        let set = f32_set(gpu, &buffers);
        submit(gpu, &set, LossScale::ONE, clip(512.0));
        match set.read_report_timeout(Duration::ZERO) {
            Ok(report) => assert_eq!(report.total_norm, Some(1024.0)),
            Err(error) => {
                assert_eq!(
                    error,
                    gradclip::Error::Timeout { whose: "set \"set\"".into(), patience: Duration::ZERO }
                );
            }
        }
        assert_eq!(set.read_report().unwrap().total_norm, Some(1024.0), "{}", adapters::label(&gpu.info));
    });
}

#[test]
fn m06_each_report_is_of_its_own_step() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        let five = run(gpu, &set, LossScale::ONE, None);
        gpu.context.queue().write_buffer(&buffers[0], 0, &f32s(&[6.0, 8.0]).1);
        let ten = run(gpu, &set, LossScale::ONE, None);
        assert_eq!(
            [five.total_norm, ten.total_norm],
            [Some(5.0), Some(10.0)],
            "{}",
            adapters::label(&gpu.info)
        );
        assert_eq!([five.run, ten.run], [1, 2]);
    });
}

/// Both copies under way before either is looked at.
#[test]
fn m06_reports_in_flight_do_not_mix() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32s(&[3.0, 4.0])]);
        let set = f32_set(gpu, &buffers);
        submit(gpu, &set, LossScale::ONE, None);
        let five = set.read_report_async();
        gpu.context.queue().write_buffer(&buffers[0], 0, &f32s(&[6.0, 8.0]).1);
        submit(gpu, &set, LossScale::ONE, None);
        let ten = set.read_report_async();
        gpu.context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let (five, ten) = (pollster::block_on(five).unwrap(), pollster::block_on(ten).unwrap());
        assert_eq!(
            [five.total_norm, ten.total_norm],
            [Some(5.0), Some(10.0)],
            "{}",
            adapters::label(&gpu.info)
        );
        assert_eq!([five.run, ten.run], [1, 2]);
    });
}

/// Fifty steps, and only then the first read.
#[test]
fn m07_steps_need_no_read_between_them() {
    each_gpu(|gpu| {
        let buffers = upload(gpu, &[f32_bits(&[0x5880_0000])]);
        let set = f32_set(gpu, &buffers);
        for _ in 0..50 {
            submit(gpu, &set, scale(2.0), None);
        }
        let report = set.read_report().unwrap();
        assert_eq!((report.run, report.total_norm), (50, Some(1.0)), "{}", adapters::label(&gpu.info));
        assert_eq!(bytes(gpu, &buffers[0]), f32s(&[1.0]).1);
    });
}
