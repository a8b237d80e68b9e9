"""What the persistent decode kernel (kernels/cuda/persistent.py) is launched with: its table, sizes and parameters.

Numbers here repeat the kernel's; tests/cuda/test_persistent.py compares them. Called by the backend; imports no compiler.
"""

STAGE = 18944  # bytes of a stage of the weight stream: 32 rows of 4 units of 144 bytes, and up to 32 around them
ENTRY = 24  # int64 words of a layer in the table
SPLITS = 4  # parts of the attention of a head
PAIRED, PASS = 128, 256  # rows of the gate matrix, or of any other, in one pass
SLICE = 1024  # columns that a row is split into
MOST_STAGES = 16
THREADS = 288
SHARED_LIMIT = 232448  # bytes of shared memory of a block on sm_90
UNITS = {12: 144, 14: 210, 8: 272}  # ggml type -> bytes of 256 values; the formats that the kernel takes
HALVES, GELU, BIASED = 1, 2, 4  # flags
LAST_EPOCH = 65535
PARAMETERS = "LDLIIIIIIUFIU" + "i" * 15 + "u" + "f" * 6


def shape_of(type_id, columns, rows, stage=STAGE):
    """A matrix as the kernel's table describes it; `rows`: the most that one block has of the matrices of its phase."""
    unit = UNITS[type_id]
    most = (stage - 32) // (columns * unit // 256)
    most -= most > 1 and most % 2  # warps take two rows at once
    taken = -(-rows // -(-rows // most))  # as many rows as fit, in stages of about the same size
    return type_id | min(taken + taken % 2, most) << 8 | unit << 32


class Sizes:
    """Dimensions of a dense model, and what the kernel needs for them on `blocks` multiprocessors."""

    def __init__(self, layers, width, heads, kv_heads, size, hidden, vocabulary, blocks, stage=STAGE):
        self.layers, self.width, self.heads, self.kv_heads, self.size = layers, width, heads, kv_heads, size
        self.hidden, self.vocabulary, self.blocks, self.stage = hidden, vocabulary, blocks, stage
        self.room = -(-max(width, heads * size, hidden) // 256) * 256

    def rows(self, matrix):
        """The most rows that a block has of the phase of a matrix (0-6 in the table's order, 7 the output)."""
        if matrix < 3:
            total = (self.heads + 2 * self.kv_heads) * self.size
        else:
            total = (self.width, self.hidden, self.hidden, self.width, self.vocabulary)[matrix - 3]
        return min(-(-total // self.blocks), PAIRED if matrix in (4, 5) or self.columns(matrix) > 8 * SLICE else PASS)

    def columns(self, matrix):
        return (*(self.width,) * 3, self.heads * self.size, self.width, self.width, self.hidden, self.width)[matrix]

    def exchange_words(self):
        across = 2 * (self.heads + 2 * self.kv_heads) * self.size + SPLITS * self.heads * (self.size + 4)
        return 4 * self.width + across + self.hidden + 128 + 4 * self.blocks

    def stages(self, static):
        """Stages that fit beside `static` bytes of shared memory."""
        rest = SHARED_LIMIT - static - self.room * 5 // 2 - 128 - (self.layers + 1) * ENTRY * 8
        return min(rest // self.stage, MOST_STAGES)

    def shared_bytes(self, stages):
        return stages * self.stage + self.room * 5 // 2 + 128 + (self.layers + 1) * ENTRY * 8

    def refusal(self, types):
        """Why the kernel does not take a model with these ggml types of matrices; None if it does."""
        strange = sorted(set(types) - set(UNITS))
        if strange:
            return f"no products for ggml types {strange}"
        if self.width > PAIRED * self.blocks or self.blocks > PASS:
            return f"{self.blocks} multiprocessors for a width of {self.width}"
        if self.heads > self.blocks * (2 - self.heads // self.kv_heads % 2):
            return f"{self.blocks} multiprocessors for {self.heads} heads"
        wide = max(self.heads * self.size, self.hidden)
        if self.width > 8 * SLICE or wide > 16 * SLICE or wide * max(UNITS[t] for t in types) // 256 + 32 > self.stage:
            return f"rows of {max(self.width, wide)} columns"
        if self.size > 128 or self.size % 8 or self.width % 32 or self.hidden % 32:
            return f"heads of {self.size} columns, width {self.width}, hidden {self.hidden}"
        return None


def table(sizes, layers, output, embedding, output_norm, cache_at):
    """The kernel's table as a list of ints. layers: dicts with `matrices` (7 pairs of address and type), `norms` (2),
    `head_norms` (2, or 0) and `biases` (3, or 0) addresses; output, embedding: address and type."""
    words = []
    for layer, at in zip(layers, cache_at, strict=True):
        entry = [0] * ENTRY
        for i, (address, type_id) in enumerate(layer["matrices"]):
            entry[i], entry[8 + i] = address, shape_of(type_id, sizes.columns(i), sizes.rows(i), sizes.stage)
        entry[7] = at
        entry[16:23] = *layer["norms"], *layer["head_norms"], *layer["biases"]
        words += entry
    last = [0] * ENTRY
    last[0], last[8] = output[0], shape_of(output[1], sizes.width, sizes.rows(7), sizes.stage)
    last[1], last[9] = embedding
    last[16] = output_norm
    return words + last
