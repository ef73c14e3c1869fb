//! A training run. The loop never waits for a step: reports arrive by themselves, and the curves of loss and accuracy
//! are fetched once in `CHUNK` steps.

use std::time::{Duration, Instant};

use gradclip::{Context, GradScaler, ScalerConfig, UpdateReport, wgpu};

use crate::clipping::{Clipping, Method};
use crate::data::{Batches, Split};
use crate::model::{self, MICROBATCHES, ROWS};
use crate::network::Network;
use crate::rule::Rule;

/// Steps between two evaluations on the test set.
pub const EVALUATE_EVERY: usize = 20;
/// Steps between two looks at the curves. Also the capacity for reports, so that none is lost.
const CHUNK: usize = 50;

#[derive(Clone, Copy)]
pub struct Settings {
    pub rule: Rule,
    pub steps: usize,
    pub seed: u64,
    pub scaler: ScalerConfig,
}

/// A scale that is far too large at first, and grows often enough to be too large again and again.
pub fn eager_scale() -> ScalerConfig {
    ScalerConfig { init_scale: 16_777_216.0, growth_interval: 20, ..ScalerConfig::default() }
}

/// What is known of a step.
pub struct Row {
    pub report: UpdateReport,
    /// Which optimizer each of the report's steps belongs to; those beyond are of no optimizer.
    pub optimizer_of: Vec<usize>,
    pub loss: f32,
    pub training_accuracy: f32,
    /// Of the test set, if it was evaluated after this step.
    pub test_accuracy: Option<f32>,
}

/// Norms of one optimizer in one step.
#[derive(Clone, Copy)]
pub struct Norms {
    pub before: f64,
    pub after: f64,
    /// Cosine of the angle between the gradient before and after.
    pub cosine: f64,
}

impl Row {
    pub fn skipped(&self) -> bool {
        self.report.steps.iter().any(|s| s.report.found_inf)
    }

    /// The scale of this step.
    pub fn scale(&self) -> f32 {
        self.report.steps[0].report.scale
    }

    /// `None` if the optimizer skipped. The norm after is the norm before times the coefficient: that is what the fused
    /// optimizer did to every gradient.
    pub fn norms(&self, optimizer: usize) -> Option<Norms> {
        let (mut before, mut after, mut product) = (0.0, 0.0, 0.0);
        for (step, _) in self.report.steps.iter().zip(&self.optimizer_of).filter(|(_, o)| **o == optimizer) {
            let (norm, coefficient) = step.report.total_norm.zip(step.report.coefficient)?;
            let square = norm.powi(2);
            before += square;
            product += square * coefficient;
            after += square * coefficient.powi(2);
        }
        let (before, after) = (f64::sqrt(before), f64::sqrt(after));
        let cosine = if after > 0.0 { product / (before * after) } else { 1.0 };
        Some(Norms { before, after, cosine })
    }
}

pub struct Run {
    pub method: Method,
    pub rows: Vec<Row>,
    pub seconds: f64,
}

impl Run {
    /// Of the test set, at the end.
    pub fn accuracy(&self) -> f32 {
        self.rows.iter().rev().find_map(|row| row.test_accuracy).unwrap_or(0.0)
    }

    pub fn skipped(&self) -> u32 {
        self.rows.last().map_or(0, |row| row.report.scaler.skipped)
    }
}

pub struct Trainer {
    gpu: Context,
    pub scaler: GradScaler,
    pub network: Network,
    clipping: Clipping,
    batches: Batches,
    method: Method,
    steps: usize,
    step: usize,
}

impl Trainer {
    pub fn new(
        gpu: &Context,
        split: &Split,
        settings: &Settings,
        method: Method,
    ) -> Result<Self, gradclip::Error> {
        let scaler = GradScaler::new(gpu, settings.scaler)?.with_reports(CHUNK);
        let evaluations = settings.steps.div_ceil(EVALUATE_EVERY);
        let initial = model::initial(settings.seed);
        let network = Network::new(gpu, &scaler, split, &initial, settings.steps, evaluations);
        let clipping = Clipping::new(gpu, &network, method, settings.rule)?;
        Ok(Self {
            gpu: gpu.clone(),
            scaler,
            network,
            clipping,
            batches: Batches::new(split.train.len(), settings.seed),
            method,
            steps: settings.steps,
            step: 0,
        })
    }

    /// Submits one step, and returns the rows that it trains on.
    pub fn step(&mut self) -> Result<Vec<u32>, gradclip::Error> {
        let rows = self.batches.next(MICROBATCHES * ROWS).to_vec();
        self.network.load_batch(self.step, self.step / EVALUATE_EVERY, &rows);
        let mut encoder = self.gpu.device().create_command_encoder(&Default::default());
        self.clipping.record_step(&mut encoder, &self.scaler, &self.network)?;
        self.network.record_training_curve(&mut encoder);
        if self.evaluates(self.step) {
            self.network.record_evaluation(&mut encoder);
        }
        self.gpu.queue().submit([encoder.finish()]);
        self.step += 1;
        Ok(rows)
    }

    /// After how many steps an evaluation is due, the last included.
    fn evaluates(&self, step: usize) -> bool {
        (step + 1).is_multiple_of(EVALUATE_EVERY) || step + 1 == self.steps
    }

    /// The reports that have arrived.
    fn arrived(&self) -> Result<Vec<UpdateReport>, gradclip::Error> {
        std::iter::from_fn(|| self.scaler.poll_report().transpose()).collect()
    }

    /// Trains to the end. `watch` sees every report when it arrives, `log` every row when it is complete.
    pub fn train(
        mut self,
        mut watch: impl FnMut(&UpdateReport),
        mut log: impl FnMut(&Row) -> Result<(), String>,
    ) -> Result<Run, String> {
        let start = Instant::now();
        let text = |e: gradclip::Error| e.to_string();
        let mut rows: Vec<Row> = Vec::with_capacity(self.steps);
        let mut reports = Vec::new();
        while self.step < self.steps {
            self.step().map_err(text)?;
            let arrived = self.arrived().map_err(text)?;
            arrived.iter().for_each(&mut watch);
            reports.extend(arrived);
            if !self.step.is_multiple_of(CHUNK) && self.step < self.steps {
                continue;
            }
            let [training, test] = self.curves()?;
            while rows.len() + reports.len() < self.step {
                let report = self.scaler.wait_report(Duration::from_secs(60)).map_err(text)?;
                let report = report.ok_or("a report is missing")?;
                watch(&report);
                reports.push(report);
            }
            for report in reports.drain(..) {
                let step = rows.len();
                let [loss, training_accuracy] = training[step];
                let test_accuracy = self.evaluates(step).then(|| test[step / EVALUATE_EVERY][1]);
                let optimizer_of = self.clipping.optimizer_of.clone();
                let row = Row { report, optimizer_of, loss, training_accuracy, test_accuracy };
                log(&row)?;
                rows.push(row);
            }
        }
        Ok(Run { method: self.method, rows, seconds: start.elapsed().as_secs_f64() })
    }

    /// Mean loss and accuracy of every training batch, and of every evaluation. Waits for the GPU.
    fn curves(&self) -> Result<[Vec<[f32; 2]>; 2], String> {
        let read = |curve| read(&self.gpu, curve);
        Ok([read(&self.network.curves[0])?, read(&self.network.curves[1])?])
    }
}

/// Reads a buffer, after everything submitted so far.
pub fn read<T: bytemuck::AnyBitPattern>(gpu: &Context, buffer: &wgpu::Buffer) -> Result<Vec<T>, String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    wgpu::util::DownloadBuffer::read_buffer(gpu.device(), gpu.queue(), &buffer.slice(..), move |result| {
        // The receiver is gone only if the wait below failed.
        _ = sender.send(result);
    });
    gpu.device().poll(wgpu::PollType::wait_indefinitely()).map_err(|e| e.to_string())?;
    let bytes = receiver.recv().map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}
