// Which words a workgroup reads. A tile is a piece of one tensor inside one binding window.

const THREADS = 256u;
// Words that a thread holds in registers at a time.
const LANE_WORDS = 16u;
const BLOCK_WORDS = THREADS * LANE_WORDS;
const SEGMENT_WORDS = 7u;

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
    tensor: u32,
}

struct Block {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

// Where the words of a thread's block lie, in a block of the workgroup that starts at `start`. Full and ragged blocks take
// the same path: a branch would be no cheaper on a GPU, and a CPU driver runs both sides of it.
fn block_places(start: u32, lane: u32) -> Block {
    let a = vec4<u32>(
        place_of(start, lane, 0u),
        place_of(start, lane, 1u),
        place_of(start, lane, 2u),
        place_of(start, lane, 3u),
    );
    return Block(a, a + vec4<u32>(4u * THREADS), a + vec4<u32>(8u * THREADS), a + vec4<u32>(12u * THREADS));
}

// Reads the words at `places`; those beyond the tile read its last ones.
fn read_block(tile: Tile, places: Block) -> Block {
    let last = vec4<u32>(tile.end - 1u);
    return read_words(tile.slot, Block(
        min(places.a, last),
        min(places.b, last),
        min(places.c, last),
        min(places.d, last),
    ));
}

// Segments (slot, first word in the window, elements, first tile, tensor, index of the first element in the tensor:
// low and high word), then the segment of each tile.
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
    return Tile(tile, table[segment], first_word + begin, first_word + whole, first_word + end, table[segment + 4u]);
}
