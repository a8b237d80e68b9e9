"""Launches of latent attention: a matrix for every head, which is a mixture whose rows all go to all experts, and attention over a
latent cache, few rows split over the slots, many in tiles (kernels/cuda/latent_attention*.py). Imported for programs that have
them."""

from ...errors import UnsupportedError
from ...program.records import Step
from ...quant.types import by_id, row_bytes
from .attention import PARTED
from .experts import FLOAT32, ExpertLowering
from .memory import EXPANDED_AT_ONCE, up
from .parameters import Own, blocks

MOST_DIMENSIONS = 1024  # kernels/cuda/latent_attention.py
MOST_SPLITS = 32  # parts of the slots that a row sees
APART, QUERIES = 1, 64  # a flag and queries of a block, kernels/cuda/latent_attention_tile.py
THREADS, TOKENS, MANY, WIDE = 128, 4, 64, 128  # kernels/cuda/head_transposed.py
SOME = 16  # up to so many rows the former is faster
FLOATS = 1  # what expand_* makes of a weight


def latent_tile_bytes(key_dim):
    """Dynamic shared memory of latent_attention_tile: queries, two tiles of slots, weights."""
    return 2 * QUERIES * (3 * key_dim + QUERIES)


def refuse(program):
    """UnsupportedError for rows of a cache that the kernel of latent attention cannot read."""
    for step in program.steps:
        if step.op == "latent_attention":
            dims = step.args["key_dim"], step.args["value_dim"]
            if max(dims) > MOST_DIMENSIONS or any(dim % 2 for dim in dims):
                need, found = f"even numbers up to {MOST_DIMENSIONS}", "{} and {} dimensions".format(*dims)
                remedy = "use --backend cpu"
                raise UnsupportedError("the cuda backend has no such latent attention", need, found, remedy=remedy)


class LatentLowering(ExpertLowering):
    """An ExpertLowering that knows the operations of latent attention too."""

    def _step_head_linear(self, step):
        if step.args.get("transposed"):
            self._transposed(step)
            return
        (x, rows), args, tensor = self._at(step.ins[0]), step.args, self.file.tensors[step.weights[0]]
        heads, head_dim, columns, part = args["heads"], args["head_dim"], tensor.shape[0], self._part(step)
        made, out, rest = part[1], self._to(step.out, rows), head_dim - columns
        product = Step("expert_linear", step.out, (step.ins[0], None), (step.weights[0], None), {"used": heads, "rows": part})
        self.of_heads = step
        inputs = self._head_halves(x, rows, heads, head_dim, columns, [product])
        whole = self.memory.named(f"made of heads {made * heads}", 4 * self.memory.rows * made * heads) if rest else out
        self._expert_products([product], inputs, ("heads", heads), rows, [whole])
        if rest:
            self._add("head_join", (heads, rows), (whole, x, out, heads, made, head_dim, columns))

    def _transposed(self, step):
        """Matrices that are stored the other way round: float32 is made of their values first."""
        (x, rows), args, (kind, columns, _) = self._at(step.ins[0]), step.args, self._size(step)
        heads, head_dim, stored, (first, used) = args["heads"], args["head_dim"], self._stored(step), self._part(step)
        weights, width = Own(self._matrix, step), columns + head_dim - used
        if kind != FLOAT32:
            count = up(heads * stored * columns, 8)
            floats = self.memory.named(f"matrices of heads {count}", 4 * count)
            whole = Own(lambda step: self.memory.weight(self.file.tensors[step.weights[0]]), step)
            self._add("expand_" + by_id(kind).name, (blocks(count, EXPANDED_AT_ONCE),), (whole, floats, count, FLOATS))
            weights = floats + 4 * first * columns
        values = x, weights, self._to(step.out, rows), rows, heads, head_dim, used, columns, stored * columns
        if rows > SOME:
            self._add("head_transposed_many", (blocks(width, WIDE), heads, blocks(rows, MANY)), values)
        else:
            self._add("head_transposed", (blocks(width, THREADS), heads, blocks(rows, TOKENS)), values)

    def _stored(self, step):
        """Rows of a head's matrix, as the tensor has them: one below the other, or in a dimension of its own."""
        tensor = self.file.tensors[step.weights[0]]
        return tensor.elements // tensor.shape[0] // (step.args["heads"] if step.op == "head_linear" else step.args["used"])

    def _part(self, step):
        """(first, count) of those rows that are used."""
        return step.args.get("rows", (0, self._stored(step)))

    def _stack(self, step):
        """What stands for a mixture here may be a part of a tensor, and has the address of its own step where a layer is copied."""
        if step.ins[1] is not None:
            return super()._stack(step)
        (kind, columns, rows), stored = self._size(step), self._stored(step)
        return Own(self._matrix, self.of_heads), stored * row_bytes(kind, columns), rows, 0, 0, stored

    def _choice(self, parts):
        step = parts[0][0]
        return super()._choice(parts) if step.ins[1] is not None else (step.args["used"], step.args["used"])

    def _head_halves(self, x, rows, heads, stride, columns, steps):
        """As `_expert_halves`, of inputs that are `stride` floats apart."""
        m, split = self.memory, self._splits_halves(steps)
        made, padded = [], blocks(columns, 32) * 32
        for name in ("", "rest of ") if split else ("",):
            pairs = m.named(f"{name}head halves {heads} {columns}", 2 * m.rows * heads * padded)
            made.append((pairs, m.named(f"{name}head factors {heads}", 4 * m.rows * heads)))
        self._add("halves", (rows * heads,), (x, 0, 0, 0.0, columns, stride, *made[0], int(split), *(made[1] if split else (0, 0))))
        return [(*some, 1, columns) for some in made]

    def _tiles_of(self, routes, rows, experts, used, tokens):
        if type(routes) is not tuple:
            return super()._tiles_of(routes, rows, experts, used, tokens)
        each = blocks(rows, tokens)
        name = f"heads {experts} of {rows}"
        order = self.memory.constant(name, lambda: words(row * experts + head for head in range(experts) for row in range(rows)))
        cut = ((h, h * rows + t * tokens, min(tokens, rows - t * tokens), 0) for h in range(experts) for t in range(each))
        tiles = self.memory.constant(f"{name} by {tokens}", lambda: words(word for tile in cut for word in tile))
        return (order, tiles), experts * each

    def _step_latent_attention(self, step):
        args, m = step.args, self.memory
        (q, _), (c, _) = map(self._at, step.ins)
        heads, key_dim, value_dim = args["heads"], args["key_dim"], args["value_dim"]
        layer = Own(self._layer_at, step)
        self._add("latent_append", (self.rows,), (c, m.cells, m.pages, key_dim, layer))
        out, scale, state = self._to(step.out, self.rows), float(args["scale"]), (m.cells, m.lists, m.positions, m.shared, m.branch)
        name = f"latent_attention_tile_{key_dim}_{value_dim}"
        if name in self.image:
            self._on_latent_tiles(name, q, out, (*state, m.pages), (heads, key_dim, value_dim), layer, scale)
            return
        splits = max(1, min(MOST_SPLITS, 2 * self.multiprocessors // heads))  # of any batch the same, and so its bits
        spread, partials, counters = 1, 0, 0
        most = max(1, 2 * self.multiprocessors // heads)  # rows whose parts have blocks of their own
        if self.rows <= most and splits > 1:
            spread = splits
            partials = m.named(f"latent partials {heads} {value_dim}", 4 * most * heads * splits * (value_dim + 2))
            counters = m.zeros(f"latent counters {heads}", 4 * most * heads)
        values = (q, out, *state, m.pages, partials, counters, splits, heads, key_dim, value_dim, layer, scale)
        self._add("latent_attention", (heads, spread, self.rows), values)

    def _on_latent_tiles(self, name, q, out, state, sizes, layer, scale):
        """Steady batches walk all slots of a row in one block. Others split them where blocks are few."""
        (heads, key_dim, value_dim), m, rows = sizes, self.memory, self.rows
        parts = blocks(heads, QUERIES)
        together, at_once = blocks(heads, parts), self.multiprocessors // parts  # rows that run at the same time
        splits = 1 if self.reach else max(1, min(MOST_SPLITS, at_once // rows))
        most = QUERIES // heads if parts == 1 else 1
        tokens = next((few for few in range(1, most) if blocks(rows, few) <= at_once), most)
        sums, facts = out, 0
        if splits > 1:
            sums = m.named(f"latent sums {heads} {value_dim}", 4 * at_once * heads * value_dim)
            facts = m.named(f"latent facts {heads}", 8 * at_once * heads)
        for flags, each in ((PARTED, tokens), (APART, 1)) if self.tree else ((0, tokens),):
            values = (q, sums, facts, *state, heads, together, each, layer, flags, scale)
            self._add(name, (blocks(rows, each), parts, splits), values, latent_tile_bytes(key_dim))
        if splits > 1:
            self._add("latent_attention_join", (heads, rows), (sums, facts, out, value_dim, splits))


def words(numbers):
    """Bytes of 32-bit numbers."""
    numbers = list(numbers)
    view = memoryview(bytearray(4 * len(numbers))).cast("i")
    for i, number in enumerate(numbers):
        view[i] = number
    return bytes(view)
