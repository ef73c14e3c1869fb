//! One panel of a chart in SVG: frame, axes, lines.

use std::fmt::Write as _;

/// Left and right end of every panel's plot area.
pub const LEFT: f64 = 76.0;
pub const RIGHT: f64 = 936.0;
/// More points than this on a line show no more.
const POINTS: usize = 2000;

#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    Linear,
    Log10,
    Log2,
}

pub struct Panel<'a> {
    out: &'a mut String,
    top: f64,
    height: f64,
    steps: f64,
    scale: Scale,
    low: f64,
    high: f64,
    legend_end: f64,
}

impl<'a> Panel<'a> {
    /// Draws the frame for `steps` steps and values that take in all of `values`.
    pub fn new(
        out: &'a mut String,
        (top, height): (f64, f64),
        title: &str,
        steps: usize,
        scale: Scale,
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let usable =
            values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0)).map(|v| on(scale, v));
        let (low, high) = usable.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let room = ((high - low) * 0.06).max(0.05);
        let (low, high) = match scale {
            // Linear panels show shares of 1.
            Scale::Linear => (((low - 0.02) * 10.0).floor().clamp(0.0, 9.0) / 10.0, 1.0),
            _ => (low - room, high + room),
        };
        let mut panel = Self { out, top, height, steps: steps as f64, scale, low, high, legend_end: RIGHT };
        _ = writeln!(panel.out, r#"<text x="{LEFT}" y="{:.1}" class="panel">{title}</text>"#, top - 8.0);
        panel.axes();
        panel
    }

    fn axes(&mut self) {
        for (value, label) in self.ticks() {
            let y = self.y_on(value);
            _ = writeln!(
                self.out,
                r#"<path d="M{LEFT} {y:.1}H{RIGHT}" class="grid"/><text x="{:.1}" y="{:.1}" class="end">{label}</text>"#,
                LEFT - 8.0,
                y + 4.0
            );
        }
        for step in step_ticks(self.steps) {
            let (x, bottom) = (self.x(step), self.top + self.height);
            _ = writeln!(
                self.out,
                r#"<path d="M{x:.1} {bottom:.1}v5" class="axis"/><text x="{x:.1}" y="{:.1}" class="middle">{step}</text>"#,
                bottom + 18.0
            );
        }
        _ = writeln!(
            self.out,
            r#"<rect x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}" class="axis"/>"#,
            self.top,
            RIGHT - LEFT,
            self.height
        );
    }

    /// Values on the axis, and their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let stride = if self.low < 0.5 { 2 } else { 1 };
                let tenths = (0..=10).filter(|i| i % stride == 0).map(|i| f64::from(i) / 10.0);
                tenths.filter(|v| *v >= self.low).map(|v| (v, format!("{v:.1}"))).collect()
            }
            Scale::Log2 => {
                let stride = ((self.high - self.low) / 5.0).ceil().max(1.0);
                let first = (self.low / stride).ceil() as i32;
                let last = (self.high / stride).floor() as i32;
                let label = |v: f64| (v, format!(r#"2<tspan dy="-5" class="power">{v}</tspan>"#));
                (first..=last).map(|i| label(f64::from(i) * stride)).collect()
            }
            Scale::Log10 => {
                let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
                let stride = ((self.high - self.low) / 5.0).ceil().max(1.0) as i32;
                // A narrow range needs more than its powers of ten.
                let digits: &[f64] = if self.high - self.low < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades = (first..=last).filter(|p| p % stride == 0);
                let values = decades.flat_map(|p| digits.iter().map(move |d| d * 10f64.powi(p)));
                let label = |v: f64| (v.log10(), if v < 1e-3 { format!("{v:.0e}") } else { plain(v) });
                values.map(label).filter(|(v, _)| (self.low..=self.high).contains(v)).collect()
            }
        }
    }

    fn x(&self, step: f64) -> f64 {
        LEFT + step / self.steps * (RIGHT - LEFT)
    }

    fn y_on(&self, on_axis: f64) -> f64 {
        let share = (on_axis - self.low) / (self.high - self.low);
        self.top + self.height * (1.0 - share.clamp(0.0, 1.0))
    }

    /// A line through the values at their steps, with a gap where there is none.
    pub fn line(&mut self, class: &str, points: impl Iterator<Item = (usize, Option<f64>)>) {
        let stride = (self.steps as usize).div_ceil(POINTS);
        let mut path = String::new();
        let mut pen = 'M';
        for (_, (step, value)) in points.enumerate().filter(|(i, _)| i.is_multiple_of(stride)) {
            let value = value.map(|v| on(self.scale, v)).filter(|v| v.is_finite());
            if let Some(value) = value {
                _ = write!(path, "{pen}{:.1} {:.1}", self.x(step as f64), self.y_on(value));
            }
            pen = if value.is_some() { 'L' } else { 'M' };
        }
        _ = writeln!(self.out, r#"<path d="{path}" class="{class}"/>"#);
    }

    /// A line that stays at each value until the next.
    pub fn staircase(&mut self, class: &str, values: impl Iterator<Item = f64>) {
        let ends = values.enumerate().flat_map(|(i, value)| [(i, Some(value)), (i + 1, Some(value))]);
        let points: Vec<_> = ends.collect();
        self.line(class, points.into_iter());
    }

    pub fn level(&mut self, class: &str, value: f64) {
        let y = self.y_on(on(self.scale, value));
        _ = writeln!(self.out, r#"<path d="M{LEFT} {y:.1}H{RIGHT}" class="{class}"/>"#);
    }

    /// A mark over the whole height.
    pub fn marks(&mut self, class: &str, steps: impl Iterator<Item = usize>) {
        let mut path = String::new();
        for step in steps {
            _ = write!(path, "M{:.1} {:.1}v{:.1}", self.x(step as f64), self.top, self.height);
        }
        _ = writeln!(self.out, r#"<path d="{path}" class="{class}"/>"#);
    }

    /// An entry of the legend, to the left of the last.
    pub fn legend(&mut self, class: &str, text: &str) {
        let (end, y) = (self.legend_end, self.top - 8.0);
        let sample = end - text.chars().map(width).sum::<f64>() - 28.0;
        _ = writeln!(
            self.out,
            r#"<path d="M{sample:.1} {:.1}h22" class="{class} sample"/><text x="{:.1}" y="{y:.1}">{text}</text>"#,
            y - 4.0,
            sample + 28.0
        );
        self.legend_end = sample - 16.0;
    }
}

fn on(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log10 => value.log10(),
        Scale::Log2 => value.log2(),
    }
}

/// Of a character of 12 px Helvetica, roughly.
fn width(character: char) -> f64 {
    match character {
        'i' | 'l' | 't' | 'f' | 'r' | '.' | ':' | ',' | ' ' => 4.4,
        'm' | 'w' | 'N' | 'M' => 10.0,
        _ => 7.2,
    }
}

/// As many digits as it takes.
fn plain(value: f64) -> String {
    let digits = (-value.log10().floor()).max(0.0) as usize;
    format!("{value:.digits$}")
}

/// About eight round step numbers.
fn step_ticks(steps: f64) -> Vec<f64> {
    let rough = steps / 8.0;
    let power = 10f64.powf(rough.log10().floor()).max(1.0);
    let stride = [1.0, 2.0, 5.0, 10.0].map(|f| f * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    (0..).map(|i| f64::from(i) * stride).take_while(|s| *s <= steps).collect()
}
