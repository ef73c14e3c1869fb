//! Proves a plan from its numbers alone, without the planner's own arithmetic.

use std::collections::{HashMap, HashSet};

use gradclip::Format;
use gradclip::plan::{
    Access, Dispatch, MAX_TILE_WORDS, MAX_WINDOWS, Plan, PlanLimits, PlanTensor, SEGMENT_WORDS, Segment,
};

/// Plans with more tiles than this are checked by segment only: their table would not fit memory.
const MOST_TABLE_TILES: u32 = 1 << 21;

/// Panics unless every element of `tensors` lies in exactly one tile and every limit is kept.
pub fn check(tensors: &[PlanTensor], limits: &PlanLimits, plan: &Plan) {
    windows(tensors, limits, plan);
    dispatches(limits, plan);
    segments(tensors, plan);
    elements(tensors, limits, plan);
    lone_windows(limits, plan);
    if plan.tiles <= MOST_TABLE_TILES {
        table(tensors, plan);
    }
}

/// Windows can be bound, do not overlap, and reach no byte that no tensor owns a word at or after.
fn windows(tensors: &[PlanTensor], limits: &PlanLimits, plan: &Plan) {
    let align = limits.window_align.max(4);
    let mut ends: HashMap<usize, u64> = HashMap::new();
    for tensor in tensors {
        let end = ends.entry(tensor.buffer).or_default();
        *end = tensor.end().max(*end);
    }
    let mut sorted = plan.windows.clone();
    sorted.sort_by_key(|w| (w.buffer, w.offset));
    for window in &sorted {
        assert!(window.size > 0 && window.size % 4 == 0, "{window:?}");
        assert!(window.size <= limits.window_bytes && window.size < 1 << 31, "{window:?}");
        assert_eq!(window.offset % align, 0, "{window:?}");
        assert!(window.offset + window.size <= ends[&window.buffer], "{window:?} ends beyond all tensors");
    }
    for pair in sorted.windows(2) {
        let apart = pair[0].buffer != pair[1].buffer || pair[0].offset + pair[0].size <= pair[1].offset;
        assert!(apart, "{pair:?} overlap");
    }
}

fn dispatches(limits: &PlanLimits, plan: &Plan) {
    let mut tile = 0;
    for dispatch in &plan.dispatches {
        assert_eq!(dispatch.first_tile, tile, "{dispatch:?}");
        tile += dispatch.tiles;
        let (x, y) = dispatch.groups;
        assert!(x > 0 && y > 0 && dispatch.tiles > 0, "empty: {dispatch:?}");
        assert!(x.max(y) <= limits.groups_per_dimension, "{dispatch:?}");
        let groups = u64::from(x) * u64::from(y);
        assert!(groups >= u64::from(dispatch.tiles), "too few groups: {dispatch:?}");
        assert!(groups - u64::from(dispatch.tiles) < u64::from(x), "a row of idle groups: {dispatch:?}");
        // The kernels number their groups in 32 bits.
        assert!(groups <= 1 << 32, "group numbers wrap: {dispatch:?}");
        let distinct: HashSet<_> = dispatch.windows.iter().collect();
        assert_eq!(distinct.len(), dispatch.windows.len(), "{dispatch:?}");
        let most = limits.windows_per_dispatch.min(MAX_WINDOWS) as usize;
        assert!((1..=most).contains(&distinct.len()), "{dispatch:?}");
    }
    assert_eq!(tile, plan.tiles);
    assert!(plan.dispatches.is_sorted_by_key(|d| (d.format, d.access)), "formats are mixed");
    let first = |formats: &[Format]| {
        let later = plan.dispatches.iter().find(|d| formats.contains(&d.format));
        later.map_or(plan.tiles, |d| d.first_tile)
    };
    let (f16, bf16) = (first(&[Format::F16, Format::Bf16]), first(&[Format::Bf16]));
    // All tensors have one role, so that the other classes of a format are empty.
    assert_eq!(plan.class_starts, [f16, f16, f16, bf16, bf16, bf16, plan.tiles, plan.tiles]);
}

/// The dispatch that holds all tiles of a segment.
fn dispatch_of<'a>(plan: &'a Plan, segment: &Segment) -> &'a Dispatch {
    let at = plan.dispatches.partition_point(|d| d.first_tile <= segment.first_tile);
    let dispatch = &plan.dispatches[at - 1];
    let end = u64::from(segment.first_tile) + u64::from(segment.tiles);
    assert!(end <= u64::from(dispatch.first_tile) + u64::from(dispatch.tiles), "{segment:?} is cut");
    dispatch
}

/// Segments follow each other tile by tile, lie inside their windows, and are where their tensor is.
fn segments(tensors: &[PlanTensor], plan: &Plan) {
    assert!((1..=MAX_TILE_WORDS).contains(&plan.tile_words));
    let mut tile = 0;
    let mut used = HashSet::new();
    for segment in &plan.segments {
        let tensor = &tensors[segment.tensor];
        let dispatch = dispatch_of(plan, segment);
        assert_eq!(segment.first_tile, tile, "{segment:?}");
        tile += segment.tiles;
        assert_eq!(dispatch.format, tensor.format, "{segment:?}");
        let index = dispatch.windows[segment.slot as usize];
        used.insert((dispatch.first_tile, index));
        let window = &plan.windows[index];
        assert_eq!(window.buffer, tensor.buffer, "{segment:?}");
        let per_word = tensor.format.per_word();
        let words = u64::from(segment.len).div_ceil(per_word);
        assert!(words > 0, "{segment:?} is empty");
        assert_eq!(u64::from(segment.tiles), words.div_ceil(plan.tile_words.into()), "{segment:?}");
        assert!((u64::from(segment.word) + words) * 4 <= window.size, "{segment:?} leaves {window:?}");
        assert_eq!(segment.element % per_word, 0, "{segment:?} starts in mid-word");
        let byte = window.offset + u64::from(segment.word) * 4;
        if dispatch.access == Access::Quads {
            assert!(
                byte.is_multiple_of(16) && segment.word.is_multiple_of(4),
                "{segment:?} starts between quads"
            );
            assert_eq!(u64::from(segment.len) % (4 * per_word), 0, "{segment:?} ends between quads");
            assert_eq!(plan.tile_words % 4, 0, "tiles of {segment:?} start between quads");
        }
        assert_eq!(byte, tensor.offset + segment.element / per_word * 4, "{segment:?} is elsewhere");
    }
    assert_eq!(tile, plan.tiles);
    let bound: usize = plan.dispatches.iter().map(|d| d.windows.len()).sum();
    assert_eq!(used.len(), bound, "a window is bound for nothing");
    let distinct: HashSet<_> = used.into_iter().map(|(_, window)| window).collect();
    assert_eq!(distinct.len(), plan.windows.len(), "a window is never bound");
}

/// Every element of every tensor once, in order, and no dispatch over the cap.
fn elements(tensors: &[PlanTensor], limits: &PlanLimits, plan: &Plan) {
    let mut covered = vec![0; tensors.len()];
    let mut by_dispatch: HashMap<u32, u64> = HashMap::new();
    for segment in &plan.segments {
        let next = &mut covered[segment.tensor];
        assert_eq!(segment.element, *next, "gap or overlap before {segment:?}");
        *next += u64::from(segment.len);
        let dispatch = dispatch_of(plan, segment);
        *by_dispatch.entry(dispatch.first_tile).or_default() += u64::from(segment.len);
        let tile = u64::from(plan.tile_words) * dispatch.format.per_word();
        let sum = by_dispatch[&dispatch.first_tile];
        assert!(sum <= limits.elements_per_dispatch.max(tile), "{sum} elements in {dispatch:?}");
    }
    let lens: Vec<u64> = tensors.iter().map(|t| t.len).collect();
    assert_eq!(covered, lens);
}

/// A large window shares its dispatches with no other.
fn lone_windows(limits: &PlanLimits, plan: &Plan) {
    let mut words: HashMap<(usize, Format, Access), u64> = HashMap::new();
    for segment in &plan.segments {
        let dispatch = dispatch_of(plan, segment);
        let key = (dispatch.windows[segment.slot as usize], dispatch.format, dispatch.access);
        *words.entry(key).or_default() += u64::from(segment.len).div_ceil(dispatch.format.per_word());
    }
    for dispatch in plan.dispatches.iter().filter(|d| d.windows.len() > 1) {
        for &window in &dispatch.windows {
            let tiles = words[&(window, dispatch.format, dispatch.access)] / u64::from(plan.tile_words);
            assert!(tiles < limits.lone_window_tiles, "window {window} is not alone in {dispatch:?}");
        }
    }
}

/// Reads the table as `find_tile` in `tile.wgsl` does, tile by tile.
fn table(tensors: &[PlanTensor], plan: &Plan) {
    let table = plan.table();
    assert_eq!(plan.tiles_at() as usize, plan.segments.len() * SEGMENT_WORDS);
    let words = plan.tiles_at() as usize + plan.tiles as usize;
    assert_eq!(table.len(), words.max(1));
    let mut next = vec![0; tensors.len()];
    for dispatch in &plan.dispatches {
        for tile in dispatch.first_tile..dispatch.first_tile + dispatch.tiles {
            let row = table[(plan.tiles_at() + tile) as usize] as usize * SEGMENT_WORDS;
            let [slot, first_word, elements, first_tile, tensor, low, high] = table[row..row + SEGMENT_WORDS]
            else {
                panic!("a segment has {SEGMENT_WORDS} words");
            };
            let tensor = tensor as usize;
            assert_eq!(tensors[tensor].format, dispatch.format);
            let per_word = dispatch.format.per_word() as u32;
            let words = elements / per_word + elements % per_word;
            let begin = (tile - first_tile) * plan.tile_words;
            let end = (begin + plan.tile_words).min(words);
            assert!(begin < end, "tile {tile} has no words");
            let window = &plan.windows[dispatch.windows[slot as usize]];
            assert!(u64::from(first_word + end) * 4 <= window.size, "tile {tile} leaves {window:?}");
            let segment_element = u64::from(low) | u64::from(high) << 32;
            assert_eq!(segment_element + u64::from(begin * per_word), next[tensor], "tile {tile}");
            next[tensor] += u64::from((end * per_word).min(elements) - begin * per_word);
            let byte = window.offset + u64::from(first_word + begin) * 4;
            let tensor = &tensors[tensor];
            let element = segment_element + u64::from(begin * per_word);
            assert_eq!(byte, tensor.offset + element / u64::from(per_word) * 4, "tile {tile}");
        }
    }
    let lens: Vec<u64> = tensors.iter().map(|t| t.len).collect();
    assert_eq!(next, lens, "tiles miss elements");
}
