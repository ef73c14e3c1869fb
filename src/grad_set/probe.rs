//! How to cut the work on a device that no table knows: a short measurement, once a context.

use std::time::{Duration, Instant};

use crate::gpu::guard::guarded;
use crate::gpu::make::empty;
use crate::gpu::readback::read_recorded;
use crate::plan::{PlanLimits, Tuning};
use crate::report::VERDICT_BYTES;
use crate::{Context, Error, Format, GradSet, Limit, TensorSlice};

/// Below this a set is not worth the measurement.
pub(crate) const WORTH_TILES: u32 = 256;

/// Scratch gradients: zeros, which cost what others cost.
const BUFFERS: u32 = 8;
const BUFFER_WORDS: u64 = 1 << 18;
const ROUNDS: usize = 5;
/// A round is long enough for the way to the device and back not to count, on all but the fastest.
const ENOUGH: Duration = Duration::from_millis(5);
const MOST_STEPS: u32 = 32;
/// Tiles that may suit a device better than the 16384 words of [`PlanLimits::from_device`]. Windows are compared at the last:
/// there the fixed cost of a tile hides least.
const OTHER_TILES: [u32; 3] = [8192, 32_768, 131_072];
/// Less of a gain is taken for noise.
const CLEARLY: f64 = 0.85;
/// Choosing between eight windows costs next to nothing, or half as much again and more where a driver runs every side of a
/// branch.
const CHOICE_COSTS: f64 = 1.25;
/// There a dispatch costs about as much as a choice between four.
const WINDOWS_IF_COSTLY: u32 = 4;
const LONE_TILES_IF_COSTLY: u64 = 1;

impl Context {
    /// How sets on this context are cut unless [`GradSetBuilder::plan_limits`](crate::GradSetBuilder::plan_limits) says
    /// otherwise: by the device's limits, with a tile size and a number of windows that a measurement chose.
    ///
    /// The first call measures, and so does the first [`build`](crate::GradSetBuilder::build) of a set of more than
    /// about 4 million words or 256 tensors: it runs the read pass over 8 MiB of scratch in a few cuts, which waits for
    /// the device, and compiles the f32 kernels for one window and for eight. That takes some tenths of a second on a
    /// software driver that knows the kernels, a second or two where they have to be compiled first, and changes no
    /// result.
    /// [`Context::without_probe`] turns it off. A device that refuses it is cut by its limits alone.
    #[must_use]
    pub fn plan_limits(&self) -> PlanLimits {
        let limits = PlanLimits::from_device(self.device());
        let tuning =
            self.shared.tuning.get_or_init(|| probe(self, limits).unwrap_or(Tuning::untried(&limits)));
        PlanLimits {
            tile_words: tuning.tile_words,
            windows_per_dispatch: tuning.windows_per_dispatch,
            lone_window_tiles: tuning.lone_window_tiles,
            ..limits
        }
    }

    /// This context without the measurement of [`Context::plan_limits`]: sets are cut by the device's limits alone. Holds
    /// for all its clones; too late once the measurement was made.
    #[must_use]
    pub fn without_probe(self) -> Self {
        let limits = PlanLimits::from_device(self.device());
        self.shared.tuning.get_or_init(|| Tuning::untried(&limits));
        self
    }
}

/// Takes the fastest of each cut's rounds, which run in turns.
fn probe(context: &Context, limits: PlanLimits) -> Result<Tuning, Error> {
    let shared = &context.shared;
    let buffers: Vec<wgpu::Buffer> = guarded(&shared.device, "allocating for a measurement", || {
        (0..BUFFERS).map(|_| empty(shared, "gradclip probe", BUFFER_WORDS * 4)).collect()
    })?;
    let cut = |tile_words, windows_per_dispatch| {
        let limits = PlanLimits { tile_words, windows_per_dispatch, lone_window_tiles: u64::MAX, ..limits };
        let mut builder = GradSet::builder("probe").plan_limits(limits);
        for (i, buffer) in buffers.iter().enumerate() {
            let slice = TensorSlice { buffer, offset: 0, len: BUFFER_WORDS, format: Format::F32 };
            builder = builder.tensor(i.to_string(), slice);
        }
        builder.build(context)
    };
    let choosing = BUFFERS.min(limits.windows_per_dispatch);
    let mut sets = vec![cut(limits.tile_words, 1)?];
    for tile_words in OTHER_TILES {
        sets.push(cut(tile_words, 1)?);
    }
    sets.push(cut(OTHER_TILES[OTHER_TILES.len() - 1], choosing)?);
    // The first steps compile, on drivers that compile when they must.
    for set in &sets {
        time(context, set, 1)?;
    }
    let once = time(context, &sets[0], 1)?;
    let steps = (ENOUGH.as_secs_f64() / once.as_secs_f64().max(1e-6)) as u32;
    let mut best = vec![Duration::MAX; sets.len()];
    for _ in 0..ROUNDS {
        for (set, best) in sets.iter().zip(&mut best) {
            *best = time(context, set, steps.clamp(1, MOST_STEPS))?.min(*best);
        }
    }
    let [usual, others @ .., choosing] = &best[..] else { return Ok(Tuning::untried(&limits)) };
    Ok(choose(limits, *usual, others, *choosing))
}

/// `usual`: the usual tile, a window a dispatch; `others`: other tiles; `choosing`: the last of them, with several windows a
/// dispatch.
fn choose(limits: PlanLimits, usual: Duration, others: &[Duration], choosing: Duration) -> Tuning {
    let (one, last) = (usual.as_secs_f64(), others.last().unwrap_or(&usual).as_secs_f64());
    let fastest = OTHER_TILES.into_iter().zip(others).min_by_key(|(_, time)| **time);
    let tile_words = fastest.filter(|(_, time)| time.as_secs_f64() < one * CLEARLY).map(|(tile, _)| tile);
    let costly = choosing.as_secs_f64() > last * CHOICE_COSTS;
    let usual = (limits.windows_per_dispatch, limits.lone_window_tiles);
    let (windows_per_dispatch, lone_window_tiles) =
        if costly { (WINDOWS_IF_COSTLY.min(usual.0), LONE_TILES_IF_COSTLY) } else { usual };
    Tuning {
        tile_words: tile_words.unwrap_or(limits.tile_words),
        windows_per_dispatch,
        lone_window_tiles,
        probed: true,
    }
}

fn time(context: &Context, set: &GradSet, steps: u32) -> Result<Duration, Error> {
    let start = Instant::now();
    read_recorded(context, "a measurement", VERDICT_BYTES, |encoder, staging| {
        for _ in 0..steps {
            set.record_deferred(encoder, 1.0, Limit::none())?;
        }
        encoder.copy_buffer_to_buffer(set.report(), 0, staging, 0, VERDICT_BYTES);
        Ok(())
    })?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> PlanLimits {
        PlanLimits::webgpu()
    }

    fn chosen(usual: u64, others: [u64; 3], choosing: u64) -> (u32, u32, u64) {
        let ms = Duration::from_millis;
        let tuning = choose(limits(), ms(usual), &others.map(ms), ms(choosing));
        assert!(tuning.probed);
        (tuning.tile_words, tuning.windows_per_dispatch, tuning.lone_window_tiles)
    }

    #[test]
    fn a_clear_gain_is_taken() {
        let (windows, lone) = (limits().windows_per_dispatch, limits().lone_window_tiles);
        assert_eq!(chosen(100, [100, 100, 100], 100), (16_384, windows, lone));
        assert_eq!(chosen(100, [86, 90, 88], 109), (16_384, windows, lone));
        assert_eq!(chosen(100, [90, 70, 60], 60), (131_072, windows, lone));
        assert_eq!(chosen(100, [50, 70, 60], 60), (8192, windows, lone));
        assert_eq!(chosen(100, [100, 100, 100], 126), (16_384, 4, 1));
        assert_eq!(chosen(100, [100, 100, 84], 106), (131_072, 4, 1));
    }

    #[test]
    fn no_more_windows_than_the_device_has() {
        let few = PlanLimits { windows_per_dispatch: 2, ..limits() };
        let ms = Duration::from_millis;
        assert_eq!(choose(few, ms(100), &[ms(100); 3], ms(400)).windows_per_dispatch, 2);
    }
}
