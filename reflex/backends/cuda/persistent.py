"""What the persistent decode kernel (kernels/cuda/persistent.py) is launched with: its table, sizes and parameters.

Numbers here repeat the kernel's; tests/cuda/test_persistent.py compares them. Called by the backend; imports no compiler.
"""

STAGE = 27008  # least bytes of a stage of the weight stream: 32 rows of 4 units of 210 bytes, and up to 32 around them
TILE, TILES = 8, 16  # rows that a warp multiplies at once; a stage should hold as many as the second
WIDE = 38016  # the same for longer rows: 16 rows of 16 units of 144 bytes, which are spread
COUNTERS = 544  # words of the exchange
ENTRY = 24  # int64 words of a layer in the table
SPLITS = 4  # parts of the attention of a head
PAGES, SLOTS = 128, 256  # pages of the cache that a part may lie in, and slots of a page
PAIRED, PASS = 128, 256  # rows of the gate matrix, or of any other, in one pass
MOST_STAGES, FEWEST_STAGES = 16, 3
SMALL = 4096  # columns
MOST_ROWS = 248  # of a stage
SHORTER, SHORT = 512, 1280  # bytes of rows that are copied together, always or in a large matrix
LISTED, NAMESAKE = 15, 23  # words of a line: where the list of its segments begins, the first line with that list
SEGMENT = 16  # bytes
THREADS = 384
SHARED_LIMIT = 232448  # bytes of shared memory of a block on sm_90
UNITS = {12: 144, 14: 210, 8: 272}  # ggml type -> bytes of 256 values; the formats that the kernel takes
HALVES, GELU, BIASED = 1, 2, 4  # flags
ACTIVATIONS = {"silu": 0, "gelu": GELU}  # and their flags
TARGETS = ("sm_90", "sm_100")  # blocks may have SHARED_LIMIT there
PARAMETERS = "LDLIIIIIIUFIU" + "i" * 14 + "f" * 6


def pitch_of(size, aligned):
    """Bytes from row to row in a stage, for `size` bytes of each that are copied on their own: spread over the banks of shared
    memory, and with room for the bytes before a slice that is not `aligned`, to 16."""
    least = size + (0 if aligned else 16)
    return next(n for n in range(-(-least // 16) * 16, least + 256, 16) if n % 128 in (32, 96))


def shape_of(type_id, columns, rows, stage=STAGE, paired=False):
    """A matrix as the kernel's table describes it; `rows`: the most that one block has of the matrices of its phase in a pass;
    `paired`: it is one of two with as many rows."""
    unit = UNITS[type_id]
    row_bytes, blocks = columns * unit // 256, -(-columns // 256)
    aligned = row_bytes % 16 == unit % 16 == 0
    if row_bytes < (SHORT if rows == PASS else SHORTER) and TILES * row_bytes + 32 <= stage:
        taken, pitch = (stage - 32) // row_bytes, row_bytes
    else:
        most = next((n for n in range(blocks, 0, -1) if TILES * pitch_of(n * unit, aligned) + 32 <= stage), 1)
        if rows <= TILE and not paired and blocks > 1:  # a stage for each of the two teams
            most = min(most, -(-blocks // 2))
        blocks = -(-blocks // -(-blocks // most))
        pitch = pitch_of(blocks * unit, aligned)
        taken = (stage - 32) // pitch
    taken = min(taken, MOST_ROWS)
    taken -= taken > TILE and taken % TILE
    groups = -(-rows // taken)
    if rows > TILE and not paired:
        groups += groups % 2
    even = -(-rows // groups)  # as many rows as fit, in stages of about the same size
    return type_id | min(-(-even // TILE) * TILE, taken) << 8 | blocks << 16 | unit << 32 | pitch << 48


class Sizes:
    """Dimensions of a dense model, and what the kernel needs for them on `blocks` multiprocessors."""

    def __init__(self, layers, width, heads, kv_heads, size, hidden, vocabulary, blocks, stage=None):
        self.layers, self.width, self.heads, self.kv_heads, self.size = layers, width, heads, kv_heads, size
        self.hidden, self.vocabulary, self.blocks = hidden, vocabulary, blocks
        self.room = -(-max(width, heads * size, hidden) // 256) * 256
        self.stage = stage or (STAGE if self.room <= SMALL else WIDE)

    def most_rows(self, matrix):
        """The most rows that a block has of the phase of a matrix (0-6 in the table's order, 7 the output)."""
        if matrix < 3:
            total = (self.heads + 2 * self.kv_heads) * self.size
        else:
            total = (self.width, self.hidden, self.hidden, self.width, self.vocabulary)[matrix - 3]
        return -(-total // self.blocks)

    def rows(self, matrix):
        """The most rows of one pass of it."""
        return min(self.most_rows(matrix), PAIRED if matrix in (4, 5) else PASS)

    def columns(self, matrix):
        return (*(self.width,) * 3, self.heads * self.size, self.width, self.width, self.hidden, self.width)[matrix]

    def shape(self, matrix, type_id):
        """See shape_of."""
        return shape_of(type_id, self.columns(matrix), self.rows(matrix), self.stage, matrix in (4, 5))

    def exchange_words(self):
        across = (self.heads + 2 * self.kv_heads) * self.size + SPLITS * self.heads * (self.size + 4)
        return 2 * self.width + across + self.hidden + COUNTERS + 4 * self.blocks

    def segments(self, types):
        """The most segments that a block has of a layer with matrices of these types (or, with one type, of the output)."""
        count, first = 0, 0 if len(types) > 1 else 7
        for i, type_id in enumerate(types, first):
            rows = self.rows(i)
            shape = self.shape(i, type_id)
            slices = -(-self.columns(i) // 256 // (shape >> 16 & 255))
            count += -(-self.most_rows(i) // rows) * (-(-rows // (shape >> 8 & 255)) + 1) * slices
        return count

    def stages(self, static, listed):
        """Stages that fit beside `static` bytes of shared memory and `listed` segments."""
        return min((SHARED_LIMIT - static - self.shared_bytes(0, listed)) // self.stage, MOST_STAGES)

    def shared_bytes(self, stages, listed):
        return stages * self.stage + self.room * 5 // 2 + 128 + (self.layers + 1) * ENTRY * 8 + listed * SEGMENT

    def reach(self):
        """Slots that attention can see: what a page of its first and last slot may leave over is not counted."""
        parts = min(SPLITS, self.blocks * (2 - self.heads // self.kv_heads % 2) // self.heads)
        return parts * (PAGES - 1) * SLOTS

    def refusal(self, types, static, listed):
        """Why the kernel does not take a model with these ggml types of matrices; None if it does."""
        strange = sorted(set(types) - set(UNITS))
        if strange:
            return f"no products for ggml types {strange}"
        if not self.blocks <= self.width <= PAIRED * self.blocks or self.blocks > min(PASS, self.hidden, self.vocabulary):
            return f"{self.blocks} multiprocessors for a width of {self.width}"
        if self.heads > self.blocks * (2 - self.heads // self.kv_heads % 2):
            return f"{self.blocks} multiprocessors for {self.heads} heads"
        if self.stages(static, listed) < FEWEST_STAGES:
            return f"rows of {self.room} columns in {self.layers} layers"
        if self.size > 128 or self.size % 8 or self.width % 32 or self.hidden % 32:
            return f"heads of {self.size} columns, width {self.width}, hidden {self.hidden}"
        return None


def table(sizes, layers, output, embedding, output_norm, cache_at):
    """(the kernel's table as a list of ints, how many segments its lists have). layers: dicts with `matrices` (7 pairs of address
    and type), `norms` (2), `head_norms` (2, or 0) and `biases` (3, or 0) addresses; output, embedding: address and type."""
    words, lists, listed = [], {}, 0
    for number, (layer, at) in enumerate(zip(layers, cache_at, strict=True)):
        entry = [0] * ENTRY
        for i, (address, type_id) in enumerate(layer["matrices"]):
            entry[i], entry[8 + i] = address, sizes.shape(i, type_id)
        types = tuple(type_id for _, type_id in layer["matrices"])
        if types not in lists:
            lists[types] = listed, number
            listed += sizes.segments(types)
        entry[7] = at
        entry[LISTED], entry[NAMESAKE] = lists[types]
        entry[16:23] = *layer["norms"], *layer["head_norms"], *layer["biases"]
        words += entry
    last = [0] * ENTRY
    last[0], last[8] = output[0], sizes.shape(7, output[1])
    last[1], last[9] = embedding
    last[16] = output_norm
    last[LISTED], last[NAMESAKE] = listed, len(layers)
    return words + last, listed + sizes.segments((output[1],))
