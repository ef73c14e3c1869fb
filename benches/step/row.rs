//! A line of the table.

use serde::{Deserialize, Serialize};

use crate::clock::Timing;
use crate::gradients::Layout;
use crate::variant::Variant;

/// What one variant took over the gradients of one model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub shape: String,
    pub format: String,
    pub layout: Layout,
    pub variant: Variant,
    pub elements: u64,
    pub tensors: u64,
    /// Each tensor is this many times shorter than the model's.
    pub scale_down: u64,
    /// From submission until the GPU is done; for variants that wait in between, the whole step.
    pub wall_ms: Spread,
    /// By the GPU's own clock, where it has one.
    pub gpu_ms: Option<Spread>,
    /// CPU time of recording; `finish` is what wgpu then does with the encoder.
    pub record_us: Option<f64>,
    pub finish_us: Option<f64>,
    /// 1e9 bytes a second that the passes of this variant read and write, by `gpu_ms` where there is one.
    pub gb_per_s: f64,
    /// Every `wall_ms` of the rounds, in order.
    pub samples: Vec<f64>,
    pub gpu_samples: Option<Vec<f64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of at least one sample.
    pub fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        } else {
            sorted[middle]
        };
        Self { median, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// What the rows of one model, format and layout have in common.
#[derive(Debug, Clone)]
pub struct Place {
    pub shape: String,
    pub format: gradclip::Format,
    pub layout: Layout,
    pub elements: u64,
    pub tensors: u64,
    pub scale_down: u64,
    pub bytes: u64,
}

impl Row {
    pub fn new(place: &Place, variant: Variant, timings: &[Timing]) -> Self {
        let of = |part: fn(&Timing) -> f64| timings.iter().map(part).collect::<Vec<f64>>();
        let milliseconds = |t: &std::time::Duration| t.as_secs_f64() * 1e3;
        let samples = of(|t| t.wall.as_secs_f64() * 1e3);
        let gpu_samples: Option<Vec<f64>> =
            timings.iter().map(|t| t.gpu.as_ref().map(milliseconds)).collect();
        let gpu_ms = gpu_samples.as_deref().map(Spread::of);
        let wall_ms = Spread::of(&samples);
        let outside = variant.is_pytorch();
        let micro = |part: fn(&Timing) -> f64| (!outside).then(|| Spread::of(&of(part)).median);
        let best = gpu_ms.unwrap_or(wall_ms).median;
        Self {
            shape: place.shape.clone(),
            format: place.format.to_string(),
            layout: place.layout,
            variant,
            elements: place.elements,
            tensors: place.tensors,
            scale_down: place.scale_down,
            record_us: micro(|t| t.record.as_secs_f64() * 1e6),
            finish_us: micro(|t| t.finish.as_secs_f64() * 1e6),
            gb_per_s: variant.passes() * place.bytes as f64 / (best * 1e-3) / 1e9,
            wall_ms,
            gpu_ms,
            samples,
            gpu_samples,
        }
    }

    /// Whether both were measured in one place.
    pub fn beside(&self, other: &Self) -> bool {
        (&self.shape, &self.format, self.layout, self.scale_down)
            == (&other.shape, &other.format, other.layout, other.scale_down)
    }

    /// This row's time over the other's.
    pub fn ratio(&self, other: &Self) -> f64 {
        self.spread_beside(other).median / other.spread_beside(self).median
    }

    /// This row's times for a comparison with another: by the GPU's clock if both have it.
    pub fn spread_beside(&self, other: &Self) -> Spread {
        self.gpu_ms.filter(|_| other.gpu_ms.is_some()).unwrap_or(self.wall_ms)
    }
}
