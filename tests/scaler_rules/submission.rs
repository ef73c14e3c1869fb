//! Public reports of kind M: what is recorded, submitted and read back, and when.

use std::time::Duration;

use gradclip::reference::scale_update;
use gradclip::{ClipNorm, Format, GradSet, ScalerConfig, ScalerState, TensorSlice, wgpu};

use crate::common::runner::upload;
use crate::rig::{
    Optimizer, bits, clip, dynamic, each, encoder, f32_bytes, norm, only_set, record, scaler, submit, take,
};

/// For a GPU that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// wgpu#1650: a uniform rewritten between two recorded passes shows both the last value.
#[test]
fn m01_two_limits_on_one_encoder_stay_apart() {
    each(|gpu| {
        let a = Optimizer::new(gpu, "a", &[3.0, 4.0]);
        let b = Optimizer::new(gpu, "b", &[6.0, 8.0]);
        let scaler = scaler(gpu, ScalerConfig::disabled());
        let mut encoder = encoder(gpu);
        let limits: [ClipNorm; 2] = [clip(1.0).unwrap(), clip(5.0).unwrap()];
        let first = scaler.begin(&a.set).unwrap().unscale().limit(limits[0]).record(&mut encoder);
        let second = scaler.begin(&b.set).unwrap().unscale().limit(limits[1]).record(&mut encoder);
        scaler.update(&mut encoder, [first.unwrap(), second.unwrap()]).unwrap();
        submit(gpu, encoder);
        assert_eq!(a.bits(), bits(&[0.6, 0.8]));
        assert_eq!(b.bits(), bits(&[3.0, 4.0]));
    });
}

/// cubecl#1120: of many uploads before any submission the early ones were lost.
#[test]
fn m03_three_hundred_buffers_made_back_to_back() {
    each(|gpu| {
        let buffers: Vec<wgpu::Buffer> = (0..300).map(|_| upload(gpu, &f32_bytes(&[1.0]))).collect();
        let mut builder = GradSet::builder("adamw");
        for (i, buffer) in buffers.iter().enumerate() {
            let slice = TensorSlice { buffer, offset: 0, len: 1, format: Format::F32 };
            builder = builder.tensor(format!("layer {i}"), slice);
        }
        let set = builder.build(gpu).unwrap();
        let scaler = scaler(gpu, ScalerConfig::disabled());
        let mut encoder = encoder(gpu);
        let step = scaler.begin(&set).unwrap().unscale().record(&mut encoder).unwrap();
        scaler.update(&mut encoder, [step]).unwrap();
        submit(gpu, encoder);
        // The f32 nearest to the root of 300.
        assert_eq!(norm(&set), f64::from(300f64.sqrt() as f32));
    });
}

/// wgpu#117: a readback that waits for ever because nobody polls.
#[test]
fn m04_a_thread_without_an_event_loop_gets_its_report() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[6.0, 8.0]);
        let scaler = scaler(gpu, dynamic(2.0)).with_reports(2);
        take(gpu, &scaler, &[&adamw], None).unwrap();
        let (update, step) = std::thread::scope(|scope| {
            let update = scope.spawn(|| scaler.wait_report(PATIENCE).unwrap().unwrap());
            let step = scope.spawn(|| adamw.set.read_report_timeout(PATIENCE).unwrap());
            (update.join().unwrap(), step.join().unwrap())
        });
        assert_eq!((update.steps[0].report.total_norm, step.total_norm), (Some(5.0), Some(5.0)));
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
    });
}

/// torchrec#4421: the norm was read before the copy was done. Here through a ring of one staging buffer.
#[test]
fn m06_each_report_is_that_of_its_own_step() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[6.0, 8.0]);
        let scaler = scaler(gpu, dynamic(2.0)).with_reports(1);
        let mut norms = Vec::new();
        for gradient in [[6.0, 8.0], [12.0, 16.0], [0.0, 0.0]] {
            adamw.fill(&gradient);
            take(gpu, &scaler, &[&adamw], None).unwrap();
            let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
            assert!(report.steps[0].ran);
            norms.push((report.update, report.steps[0].report.total_norm));
        }
        assert_eq!(norms, [(0, Some(5.0)), (1, Some(10.0)), (2, Some(0.0))]);
        assert_eq!((scaler.poll_report(), scaler.lost_reports()), (Ok(None), 0));
    });
}

/// The same with both on their way at once, in one submission and read in order; then in the same staging buffers.
#[test]
fn m06_two_reports_on_their_way_stay_apart() {
    each(|gpu| {
        let (a, b) = (Optimizer::new(gpu, "a", &[0.0; 2]), Optimizer::new(gpu, "b", &[0.0; 2]));
        let scaler = scaler(gpu, dynamic(2.0)).with_reports(2);
        for round in [1.0, 2.0, 3.0f32] {
            a.fill(&[6.0 * round, 8.0 * round]);
            b.fill(&[12.0 * round, 16.0 * round]);
            let mut encoder = encoder(gpu);
            record(&mut encoder, &scaler, &[&a], None).unwrap();
            record(&mut encoder, &scaler, &[&b], None).unwrap();
            submit(gpu, encoder);
            for want in [5.0 * round, 10.0 * round] {
                let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
                assert_eq!(report.steps[0].report.total_norm, Some(f64::from(want)));
            }
            assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
        }
        assert_eq!(scaler.lost_reports(), 0);
    });
}

/// pytorch#60691: the host branched on what the GPU found. Here a thousand steps and updates are recorded before the
/// first of them is submitted, so that nothing the host does can depend on an answer.
#[test]
fn m07_a_thousand_steps_are_recorded_before_any_answer_can_exist() {
    const STEPS: usize = 1000;
    let config = ScalerConfig { growth_interval: 3, growth_factor: 1.7, ..ScalerConfig::default() };
    let gradients: Vec<f32> = (0..STEPS).map(|i| if i % 7 == 3 { f32::NAN } else { i as f32 }).collect();
    let mut want = ScalerState::new(&config);
    for gradient in &gradients {
        scale_update(&config, &mut want, gradient.is_nan(), false);
        want.stepped += u32::from(!gradient.is_nan());
    }
    want.sets = only_set("adamw", &want);
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[0.0]);
        let scaler = scaler(gpu, config);
        let backward = upload(gpu, &f32_bytes(&gradients));
        let mut commands = Vec::new();
        for i in 0..STEPS as u64 {
            let mut encoder = encoder(gpu);
            encoder.copy_buffer_to_buffer(&backward, 4 * i, &adamw.page, 0, 4);
            record(&mut encoder, &scaler, &[&adamw], None).unwrap();
            commands.push(encoder.finish());
        }
        gpu.queue().submit(commands);
        assert_eq!(scaler.state_dict().unwrap(), want);
        assert_eq!(adamw.verdict().run, STEPS as u32);
    });
}

/// Nothing else in the crate can map, wait or poll: the calls stand in these files only, and those outside reports and
/// readbacks wait for nothing.
#[test]
fn m07_only_reports_map_and_poll() {
    let calls =
        ["map_async", "map_buffer_on_submit", ".poll(", "PollType", "get_mapped_range(", "on_submitted_work"];
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: [(&str, &[&str]); 6] = [
        ("gpu/readback.rs", &["map_async", ".poll(", "PollType", "get_mapped_range("]),
        ("grad_set/measure.rs", &["map_buffer_on_submit", ".poll(", "PollType", "get_mapped_range("]),
        ("scaler/reports.rs", &["map_buffer_on_submit", ".poll(", "PollType", "get_mapped_range("]),
        // What the host hears of a halt: `begin` polls and does not wait.
        ("scaler/watch.rs", &["map_buffer_on_submit", "get_mapped_range("]),
        ("scaler/mod.rs", &[".poll(", "PollType"]),
        // Slots of parameters are free again when the GPU is done.
        ("gpu/ring.rs", &["on_submitted_work"]),
    ];
    let mut seen = 0;
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&source).unwrap().to_string_lossy().replace('\\', "/");
            let text = std::fs::read_to_string(&path).unwrap();
            let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found: Vec<&str> =
                calls.into_iter().filter(|call| code().any(|line| line.contains(call))).collect();
            let may = allowed.iter().find(|(file, _)| *file == name).map_or(&[][..], |(_, calls)| calls);
            assert_eq!(found, may, "{name}");
            let waits =
                code().any(|line| line.contains("PollType::Wait") || line.contains("wait_indefinitely"));
            assert!(!waits || may.contains(&"get_mapped_range("), "{name} waits");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} files");
}

/// Without `with_reports` there is nothing to read, and asking does not wait.
#[test]
fn m07_no_report_is_made_unless_asked_for() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[1.0]);
        let scaler = scaler(gpu, dynamic(2.0));
        take(gpu, &scaler, &[&adamw], None).unwrap();
        assert_eq!(scaler.poll_report(), Ok(None));
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
        assert_eq!((scaler.latest_report(), scaler.lost_reports()), (None, 0));
    });
}

/// A report that was not fetched in time is counted, and the others are still in order.
#[test]
fn an_overrun_of_the_ring_is_counted() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let scaler = scaler(gpu, dynamic(2.0)).with_reports(2);
        for _ in 0..5 {
            take(gpu, &scaler, &[&adamw], None).unwrap();
        }
        assert_eq!(scaler.lost_reports(), 3);
        for update in 0..2 {
            let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
            assert_eq!((report.update, report.scaler.updates, report.lost), (update, update as u32 + 1, 3));
        }
        take(gpu, &scaler, &[&adamw], None).unwrap();
        let report = scaler.wait_report(PATIENCE).unwrap().unwrap();
        assert_eq!((report.update, report.scaler.updates, report.steps[0].ran), (5, 6, true));
        assert_eq!(scaler.latest_report().unwrap(), report);
    });
}

/// A wait for an encoder that nobody submits ends.
#[test]
fn waiting_for_an_encoder_that_was_not_submitted_ends() {
    each(|gpu| {
        let adamw = Optimizer::new(gpu, "adamw", &[2.0]);
        let scaler = scaler(gpu, dynamic(2.0)).with_reports(2);
        let mut held = encoder(gpu);
        record(&mut held, &scaler, &[&adamw], None).unwrap();
        assert_eq!(scaler.wait_report(PATIENCE), Ok(None));
        submit(gpu, held);
        assert_eq!(scaler.wait_report(PATIENCE).unwrap().unwrap().update, 0);
        assert_eq!(scaler.poll_report(), Ok(None));
    });
}
