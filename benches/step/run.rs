//! One run: the models, the growth series, the costs of sets.

use gradclip::{Format, wgpu};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::adapters;
use crate::args::Args;
use crate::clock::Clock;
use crate::gradients::Layout;
use crate::limit::Limit;
use crate::measure::{Contest, Rounds};
use crate::numbers;
use crate::pytorch::PyTorch;
use crate::record::{Cut, Record};
use crate::row::Row;
use crate::sets;
use crate::shapes::{Shape, models};
use crate::variant::Variant;

/// More rounds where a measurement takes microseconds.
const SHORT: u64 = 1 << 22;
/// A model that does not fit at this scale does not fit.
const SMALLEST: u64 = 1 << 16;

pub fn run(args: &Args) -> Result<Record, String> {
    let date = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let gpu = open(args)?;
    let clock = Clock::new(&gpu.context);
    // Measures how to cut, if nothing has: not while a set is being timed.
    let limits = gpu.context.plan_limits();
    println!("{date}\n\n{}\n", gpu.context.environment());
    let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {msg}").map_err(|e| e.to_string())?;
    bar.set_style(style.progress_chars("#>-"));
    bar.set_message("choosing the kernels of the limit");
    bar.tick();
    let limit = Limit::calibrate(&clock, args.calibration)?;
    let mut session =
        Session { args, clock: &clock, limit: &limit, bar: &bar, pytorch: Vec::new(), tell: Vec::new() };
    let results = session.models()?;
    let growth = session.growth()?;
    let sets = session.sets(&results)?;
    bar.set_message("numbers");
    let numbers = numbers::measure(&clock, args.most_tensors.min(150), args.many_rounds)?;
    let (pytorch, tell) = (session.pytorch, session.tell);
    bar.finish_and_clear();
    for line in tell {
        println!("{line}");
    }
    Ok(Record {
        date,
        environment: environment(&gpu.context),
        cut: Cut {
            tile_words: limits.tile_words,
            windows_per_dispatch: limits.windows_per_dispatch,
            lone_window_tiles: limits.lone_window_tiles,
        },
        limit_kernels: limit.names().map(str::to_owned),
        pytorch,
        rounds: args.rounds.measured as u64,
        results,
        growth,
        sets,
        numbers,
    })
}

/// The first adapter of that name, a GPU before a CPU, with timestamps, if it has them.
fn open(args: &Args) -> Result<adapters::Gpu, String> {
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};
    let mut adapters = adapters::named(args.adapter.as_deref().unwrap_or(""))?;
    let order = [DiscreteGpu, IntegratedGpu, VirtualGpu, Other, Cpu];
    adapters.sort_by_key(|a| order.iter().position(|kind| *kind == a.get_info().device_type));
    let adapter = adapters.first().ok_or(adapters::NO_ADAPTER)?;
    adapters::open_device(
        adapter,
        &wgpu::DeviceDescriptor {
            label: Some("gradclip bench"),
            required_limits: adapter.limits(),
            required_features: adapter.features() & wgpu::Features::TIMESTAMP_QUERY,
            ..Default::default()
        },
    )
}

struct Session<'a> {
    args: &'a Args,
    clock: &'a Clock,
    limit: &'a Limit,
    bar: &'a ProgressBar,
    pytorch: Vec<crate::pytorch::Version>,
    /// For people, once the bar is gone.
    tell: Vec<String>,
}

impl Session<'_> {
    fn models(&mut self) -> Result<Vec<Row>, String> {
        let only = self.args.only.as_deref().unwrap_or("");
        let fits = |m: &Shape| m.name.contains(only) && m.tensors.len() <= self.args.most_tensors;
        let models: Vec<Shape> = models().into_iter().filter(fits).collect();
        if models.is_empty() {
            return Err(format!("no model is named like \"{only}\""));
        }
        self.bar.set_length((models.len() * Format::ALL.len() * Layout::ALL.len()) as u64);
        let mut rows = Vec::new();
        let mut peers = self.peers();
        for model in &models {
            for format in Format::ALL {
                for layout in Layout::ALL {
                    self.bar.set_message(format!("{} {format} {}", model.name, layout.name()));
                    // PyTorch has its gradients in f32 and a buffer for each.
                    let like = format == Format::F32 && layout == Layout::Separate;
                    let none = &mut Vec::new();
                    rows.extend(self.model(model, (format, layout), if like { &mut peers } else { none })?);
                    self.bar.inc(1);
                }
            }
        }
        Ok(rows)
    }

    /// At the scale asked for, or at the first that fits.
    fn model(
        &mut self,
        model: &Shape,
        (format, layout): (Format, Layout),
        peers: &mut Vec<(Variant, PyTorch)>,
    ) -> Result<Vec<Row>, String> {
        let mut scale_down = self.args.scale_down.unwrap_or(1);
        loop {
            let shape = model.scaled_down(scale_down);
            let way = (format, layout);
            peers.retain_mut(|(variant, peer)| {
                let made = peer.make(&shape);
                self.tell
                    .extend(made.as_ref().err().map(|why| format!("{} left out: {why}", variant.name())));
                made.is_ok()
            });
            let made = Contest::new(self.clock, self.limit, &shape, way, scale_down, &Variant::ALL, peers);
            match made {
                Ok(mut contest) => return self.turns(&mut contest, self.args.rounds),
                Err(why) if self.args.scale_down.is_some() || scale_down >= SMALLEST => {
                    return Err(format!("{} in {format}: {why}", model.name));
                }
                Err(why) => {
                    self.tell.push(format!("{} / {scale_down} in {format} does not fit: {why}", model.name));
                    scale_down *= 2;
                }
            }
        }
    }

    fn turns(&mut self, contest: &mut Contest<'_>, rounds: Rounds) -> Result<Vec<Row>, String> {
        let place = contest.place.clone();
        let (rows, lost) = contest
            .run(rounds, || self.bar.tick())
            .map_err(|e| format!("{} in {}, {}: {e}", place.shape, place.format, place.layout.name()))?;
        self.tell.extend(lost);
        Ok(rows)
    }

    /// Starts what there is of PyTorch.
    fn peers(&mut self) -> Vec<(Variant, PyTorch)> {
        let Some(python) = &self.args.python else { return Vec::new() };
        let mut peers = Vec::new();
        for (variant, device) in [(Variant::PytorchCpu, "cpu"), (Variant::PytorchCuda, "cuda")] {
            match PyTorch::start(python, device) {
                Ok(peer) => {
                    self.pytorch.push(peer.version.clone());
                    peers.push((variant, peer));
                }
                Err(why) => self.tell.push(format!("{} left out: {why}", variant.name())),
            }
        }
        peers
    }

    /// f32: one tensor of growing length, then more and more tensors of 1000.
    fn growth(&mut self) -> Result<Vec<Row>, String> {
        if self.args.only.is_some() {
            return Ok(Vec::new());
        }
        const WANTED: [Variant; 4] =
            [Variant::LimitRead, Variant::LimitReadWrite, Variant::Step, Variant::StepUnscale];
        let lengths = (0..).map(|i| 1u64 << (12 + 2 * i)).take_while(|n| *n <= self.args.growth);
        let mut series: Vec<(Shape, Layout)> =
            lengths.map(|n| (Shape::new(format!("one-of-{n}"), vec![n]), Layout::Arena)).collect();
        let counts = [1, 3, 10, 30, 100, 300, 1000];
        for count in counts.into_iter().filter(|n| *n <= self.args.most_tensors) {
            for layout in Layout::ALL {
                series.push((Shape::new(format!("{count}-of-1000"), vec![1000; count]), layout));
            }
        }
        self.bar.inc_length(series.len() as u64);
        let (mut rows, mut none) = (Vec::new(), Vec::new());
        for (shape, layout) in &series {
            self.bar.set_message(format!("growth: {} {}", shape.name, layout.name()));
            let mut rounds = self.args.rounds;
            if shape.elements() <= SHORT {
                rounds.measured = self.args.many_rounds;
            }
            let made =
                Contest::new(self.clock, self.limit, shape, (Format::F32, *layout), 1, &WANTED, &mut none);
            match made {
                Ok(mut contest) => rows.extend(self.turns(&mut contest, rounds)?),
                Err(why) => self.tell.push(format!("{} does not fit: {why}", shape.name)),
            }
            self.bar.inc(1);
        }
        Ok(rows)
    }

    fn sets(&mut self, results: &[Row]) -> Result<Vec<sets::SetRow>, String> {
        let mut rows = Vec::new();
        let scale_down = self.args.scale_down.unwrap_or(1);
        let three_hundred = Shape::new("300-of-1024", vec![1024; 300]);
        let many = self.args.many_rounds;
        let own = [1, 2].map(|optimizers| (three_hundred.clone(), optimizers, 1, many));
        let few = self.args.rounds.measured;
        let models = models().into_iter().map(|model| (model, 1, scale_down, few));
        let only = self.args.only.as_deref().unwrap_or("");
        for (model, optimizers, scale_down, rounds) in own.into_iter().chain(models) {
            if model.tensors.len() > self.args.most_tensors || !model.name.contains(only) {
                continue;
            }
            for layout in Layout::ALL {
                self.bar.set_message(format!("sets: {} {}", model.name, layout.name()));
                self.bar.tick();
                // What had room for every variant has room for this.
                let fitted =
                    |r: &&Row| r.shape == model.name && (r.layout, r.format.as_str()) == (layout, "f32");
                let scale_down = results.iter().find(fitted).map_or(scale_down, |row| row.scale_down);
                let shape = model.scaled_down(scale_down);
                let measured = sets::measure(self.clock, &shape, layout, (optimizers, scale_down), rounds);
                rows.push(measured.map_err(|e| format!("the sets of {}: {e}", shape.name))?);
            }
        }
        Ok(rows)
    }
}

fn environment(gpu: &gradclip::Context) -> serde_json::Value {
    let e = gpu.environment();
    serde_json::json!({
        "gradclip": e.version,
        "target": format!("{} {}", e.os, e.arch),
        "adapter": e.adapter,
        "device_type": e.device_type,
        "vendor": e.vendor,
        "device": e.device,
        "driver": e.driver,
        "driver_info": e.driver_info,
        "backend": e.backend,
        "limits": e.limits,
        "features": e.features,
        "loop_bounds": e.loop_bounds,
    })
}
