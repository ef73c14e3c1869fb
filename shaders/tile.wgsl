// Which words a workgroup reads. A tile is a piece of one tensor inside one binding window.

const THREADS = 256u;
// Words that a thread holds in registers at a time, `THREADS` apart, so that neighbours read neighbours.
const LANE_WORDS = 16u;
const BLOCK_WORDS = THREADS * LANE_WORDS;
const SEGMENT_WORDS = 5u;

struct Dispatch {
    first_tile: u32,
    tile_count: u32,
    tile_words: u32,
    // Where in `table` the segment of each tile is listed.
    tiles_at: u32,
    // Holds 0, which the compiler cannot know.
    zero: u32,
}

struct Tile {
    // Index into the partials.
    index: u32,
    slot: u32,
    // Words of the window: begin <= word < end. Those from `whole` on (none or one) belong to the tensor with their
    // lower half only.
    begin: u32,
    whole: u32,
    end: u32,
}

struct Block {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

// Segments (slot, first word in the window, elements, first tile, tensor), then the segment of each tile.
@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(1) @binding(0) var<uniform> dispatch: Dispatch;

fn find_tile(index: u32) -> Tile {
    let tile = dispatch.first_tile + index;
    let segment = table[dispatch.tiles_at + tile] * SEGMENT_WORDS;
    let first_word = table[segment + 1u];
    let elements = table[segment + 2u];
    let words = elements / ELEMENTS_PER_WORD + elements % ELEMENTS_PER_WORD;
    let begin = (tile - table[segment + 3u]) * dispatch.tile_words;
    let end = min(begin + dispatch.tile_words, words);
    let whole = min(end, elements / ELEMENTS_PER_WORD);
    return Tile(tile, table[segment], first_word + begin, first_word + whole, first_word + end);
}

// The words of a block that runs over the end of its tile: those beyond are 0.
fn read_ragged(tile: Tile, at: u32) -> Block {
    let last = tile.end - 1u;
    let step = vec4<u32>(0u, 1u, 2u, 3u) * THREADS;
    let a = vec4<u32>(at) + step;
    let b = a + vec4<u32>(4u * THREADS);
    let c = b + vec4<u32>(4u * THREADS);
    let d = c + vec4<u32>(4u * THREADS);
    return Block(
        keep(tile, a, read_at(tile.slot, min(a, vec4<u32>(last)))),
        keep(tile, b, read_at(tile.slot, min(b, vec4<u32>(last)))),
        keep(tile, c, read_at(tile.slot, min(c, vec4<u32>(last)))),
        keep(tile, d, read_at(tile.slot, min(d, vec4<u32>(last)))),
    );
}

fn keep(tile: Tile, at: vec4<u32>, words: vec4<u32>) -> vec4<u32> {
    let lower = select(words, words & vec4<u32>(0xffffu), at >= vec4<u32>(tile.whole));
    return select(lower, vec4<u32>(0u), at >= vec4<u32>(tile.end));
}
