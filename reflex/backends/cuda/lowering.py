"""A Program as launches: which kernel runs on which addresses, for a batch of a given size.

`Lowering(...).lower()` appends the launches of one evaluation to a chain (launch.py). Fused records (fusion.py) choose
their kernel by the number of rows and by the block formats they meet; each kernel's parameters are described in its own
file under reflex/kernels/cuda. Layers that repeat are copied with their addresses replaced.
"""

from ...errors import UnsupportedError
from ...quant import load
from ...quant.types import by_id, row_bytes
from ..layers import repeats
from .fusion import fuse

MODES = {"store": 0, "add": 1, "gated": 2}
ACTIVATIONS = {"silu": 0, "gelu": 1}
Q_NORM, K_NORM, NORM_AFTER, NEOX, INPUTS, EARLY = 1, 2, 4, 8, 32, 64  # flags of the attention kernels
LAYER_UNIT = 512  # bytes
ATTENTION_BYTES = 96 << 10  # of shared memory that attention of few rows may take
MOST_SPLITS = 64
SEGMENTS = 3
TILE = 16  # weight rows of products of one token
TOKEN_TILES = (32, 64), (64, 128)  # kernels/cuda/linear_tiles.py: tokens and weight rows of a block, by tokens
TOKEN_TILE_BYTES = 65536
FEW = 16  # attention of up to this many tokens is split over the slots


def slot_tile_bytes(tile, key_dim, value_dim):
    """Dynamic shared memory of attention_row for tiles of `tile` slots."""
    key_words, value_words = 16 * blocks(key_dim, 32) + 4, 4 * (blocks(value_dim, 8) | 1)
    return 4 * (tile * (key_words + value_words) + 16 * key_words + max(16 * (tile // 2 + 4), 8 * max(key_dim, value_dim)))


def tile_bytes(dim):
    """Dynamic shared memory of attention_tile."""
    pitch = 2 * dim + 16
    return 128 * pitch if dim < 256 else (64 + 64) * pitch


def in_fragments(kind):
    """Whether a block format has kernels on tensor cores (quant/fragment.py)."""
    return hasattr(load(by_id(kind).name), "FRAGMENT")


def blocks(count, size):
    return (count + size - 1) // size


class Own:
    """A parameter that differs from layer to layer: `word(step)` gives it for the step in the same place of another layer."""

    __slots__ = ("step", "word")

    def __init__(self, word, step):
        self.word = word
        self.step = step


class Template:
    """The launches of one layer."""

    __slots__ = ("changes", "first", "last", "start", "steps")

    def __init__(self, first, last, start, steps, changes):
        self.first = first  # program steps [first, last)
        self.last = last
        self.start = start  # chain rows
        self.steps = steps
        self.changes = changes  # (row, parameter, step within the layer, word)


class Lowering:
    """Adds the launches of one evaluation of `rows` tokens, `wanted` of them with logits."""

    def __init__(self, image, multiprocessors, chain, file, program, memory, rows, wanted):
        self.image = image  # module.Images
        self.multiprocessors = multiprocessors
        self.chain = chain
        self.file = file
        self.program = program
        self.memory = memory
        self.rows = rows
        self.wanted = wanted
        self.selected = {}  # buffer -> address of its wanted rows
        self.own = []  # (row, parameter, step, word) of the layer being lowered

    def lower(self):
        """Append every launch; returns (first, last) rows of the chain."""
        begin = len(self.chain)
        program = self.program
        for i, rope in enumerate(program.ropes):
            self._rope_angles(i, rope)
        bounds = [0, *program.layers, len(program.steps)]
        templates = []
        for number in range(len(bounds) - 1):
            first, last = bounds[number], bounds[number + 1]
            inner = 0 < number < len(bounds) - 2
            keeps_rows = self.rows == self.wanted or not any(s.op == "select" for s in program.steps[first:last])
            if inner and keeps_rows:
                known = next((t for t in templates if self._repeats(t, first, last)), None)
                if known:
                    self._copy(known, first)
                    continue
            templates += [self._record(first, last)] if inner and keeps_rows else []
            if not (inner and keeps_rows):
                self._lower(first, last)
        self._stats()
        return begin, len(self.chain)

    def _stats(self):
        """Largest logit, its id and the sum of exponentials of every wanted row."""
        m, columns = self.memory, self.program.vocabulary
        parts = blocks(columns, 4096)
        partials = m.named("stats partials", 16 * m.wanted_rows * parts)
        counters = m.zeros("stats counters", 4 * m.wanted_rows)
        self._add("logits_stats", (parts, self.wanted), (self._at("logits")[0], m.stats, partials, counters, columns))

    def _lower(self, first, last):
        for record in fuse(self.program.steps[first:last], self.rows != self.wanted):
            getattr(self, "_" + type(record).__name__.lower())(record)

    def _record(self, first, last):
        self.own = []
        start = len(self.chain)
        self._lower(first, last)
        places = {id(step): k for k, step in enumerate(self.program.steps[first:last])}
        changes = [(row, parameter, places[id(step)], word) for row, parameter, step, word in self.own]
        return Template(first, last, start, len(self.chain), changes)

    def _repeats(self, template, first, last):
        count = template.last - template.first
        return last - first == count and repeats(self.program, self.file.tensors, template.first, first, count)

    def _copy(self, template, first):
        steps = self.program.steps
        changes = [(row, parameter, word(steps[first + k])) for row, parameter, k, word in template.changes]
        self.chain.repeat(template.start, template.steps, changes)

    def _add(self, kernel, grid, values, shared=0):
        row = len(self.chain)
        for i, value in enumerate(values):
            if type(value) is Own:
                self.own.append((row, i, value.step, value.word))
        plain = [value.word(value.step) if type(value) is Own else value for value in values]
        # The first launch waits for the copy of the request, so that later ones may read it before they wait.
        self.chain.add(self.image.kernel(kernel), (*grid, 1, 1)[:3], plain, shared, overlap=row > 0)

    # ---- facts ----

    def _rope_angles(self, index, rope):
        m, pairs = self.memory, len(rope.frequencies)
        values = (m.frequencies(index), m.positions, self._angles(index), pairs, self.rows, float(rope.magnitude))
        self._add("rope_angles", (blocks(pairs * self.rows, 256),), values)

    def _angles(self, index):
        return self.memory.named(f"angles {index}", 8 * self.memory.rows * len(self.program.ropes[index].frequencies))

    def _at(self, buffer):
        """(address, rows) of a buffer: all rows, or the wanted ones once they were selected."""
        address = self.selected.get(buffer)
        return (address, self.wanted) if address else (self.memory.buffer(buffer), self.rows)

    def _to(self, buffer, rows):
        """The address to write `rows` rows of a buffer to."""
        if rows == self.rows:
            self.selected.pop(buffer, None)
            return self.memory.buffer(buffer)
        self.selected[buffer] = address = self.memory.selected(buffer)
        return address

    def _width(self, buffer):
        return self.program.widths[buffer]

    def _weight(self, number):
        """Function of a step: the address of its weight `number` as float32."""
        return lambda step: self.memory.floats(self.file.tensors[step.weights[number]])

    def _floats(self, step, number=0):
        """Parameter for the float32 weight of a step that may be absent."""
        return Own(self._weight(number), step) if step and step.weights[number] else 0

    # ---- products ----

    def _matrix(self, step):
        tensor = self.file.tensors[step.weights[0]]
        part = step.args.get("rows")
        kind = self.memory.layout.kind(tensor)
        return self.memory.weight(tensor) + (part[0] * row_bytes(kind, tensor.shape[0]) if part else 0)

    def _bias(self, step):
        return self.memory.floats(self.file.tensors[step.weights[1]]) + 4 * step.args.get("bias_row", 0)

    def _size(self, step):
        """(type id, columns, rows) of a product's matrix."""
        tensor = self.file.tensors[step.weights[0]]
        rows = step.args["rows"][1] if "rows" in step.args else tensor.shape[1]
        return self.memory.layout.kind(tensor), tensor.shape[0], rows

    def _linear(self, record):
        steps = record.steps
        source, rows = self._at(record.source)
        outs = self._outs(record, rows)
        sizes = [self._size(step) for step in steps]
        columns = sizes[0][1]
        norm = Own(self._weight(0), record.norm) if record.norm else 0
        normed, eps = (1, record.norm.args["eps"]) if record.norm else (0, 0.0)
        source = source, norm, normed, float(eps), columns
        if not all(in_fragments(size[0]) for size in sizes):
            self._slow(record, source, sizes, outs, rows)
        elif rows == 1:
            self._row(record, source, sizes, outs)
        else:
            self._many(record, source, sizes, outs, rows)

    def _segments(self, steps, sizes, outs, strides):
        """Parameters of up to three matrices; with `strides`, each with the floats per row of its result."""
        values = []
        for step, (kind, _, count), (out, stride) in zip(steps, sizes, outs, strict=True):
            bias = Own(self._bias, step) if step.weights[1] else 0
            values += [Own(self._matrix, step), kind, count, bias, 1 if bias else 0, out, *([stride] if strides else [])]
        return values + [0] * ((7 if strides else 6) * (SEGMENTS - len(steps)))

    def _tail(self, record):
        return MODES[record.mode], ACTIVATIONS.get(record.act, 0), float(record.scale)

    def _row(self, record, source, sizes, outs):
        """The product of one token."""
        kinds = {size[0] for size in sizes}
        lengths = {by_id(kind).elements for kind in kinds}
        if len(lengths) > 1:  # no kernel has all of them: one launch each
            apart = self._own_outs(record, 1) if record.mode == "gated" else outs
            for step, size, out in zip(record.steps, sizes, apart, strict=True):
                self._row_launch("linear_row_" + by_id(size[0]).name, [step], source, [size], [out], (0, 0, 1.0))
            if record.mode == "gated":
                self._gate(record, apart, 1)
            return
        kernel = "linear_row_" + (by_id(kinds.pop()).name if len(kinds) == 1 else str(lengths.pop()))
        self._row_launch(kernel, record.steps, source, sizes, outs, self._tail(record))

    def _splits(self, sizes, gated, columns):
        """(warps that share a tile of weight rows by columns, blocks): no more blocks than run at once."""
        tiles, most = sum(blocks(size[2], TILE) for size in sizes), 2 * self.multiprocessors
        splits, units = 1, blocks(columns, 256)
        while splits < (4 if gated else 8) and 2 * splits <= units and 2 * splits * tiles <= 8 * most:
            splits *= 2
        return splits, min(blocks(tiles * splits, 8), most)

    def _row_launch(self, kernel, steps, source, sizes, outs, tail):
        splits, grid = self._splits(sizes, tail[0] == MODES["gated"], source[-1])
        columns = source[-1]
        values = (*source, *self._segments(steps, sizes, outs, False), *tail, splits)
        self._add(kernel, (grid,), values, 16 + blocks(columns, 256) * 256 * 9 // 4)

    def _many(self, record, source, sizes, outs, rows):
        """The product of several tokens, on tiles of them."""
        pairs, factors, _ = self._halves(source, rows)
        apart = record.mode == "gated" and sizes[0][0] != sizes[1][0]  # the kernel wants gate and up alike
        if apart:
            outs = self._own_outs(record, rows)
        segments = self._segments(record.steps, sizes, outs, True)
        tail = (0, 0, 1.0) if apart else self._tail(record)
        few = f"linear_rows_{8 if rows <= 8 else 16}_{by_id(sizes[0][0]).name}"
        if rows <= FEW and few in self.image and len({size[0] for size in sizes}) == 1:
            splits, _ = self._splits(sizes, tail[0] == MODES["gated"], source[-1])
            grid = blocks(splits * sum(blocks(size[2], TILE) for size in sizes), 8)
            self._add(few, (grid,), (pairs, factors, rows, source[-1], *segments, *tail, splits))
        else:
            self._tiles(sizes, (pairs, factors, rows, source[-1], *segments, *tail), tail[0] == MODES["gated"], rows)
        if apart:
            self._gate(record, outs, rows)

    def _tiles(self, sizes, values, gated, rows):
        tokens, tile_rows = next(tile for tile in TOKEN_TILES if rows <= tile[0] or tile is TOKEN_TILES[-1])
        tiles = blocks(2 * sizes[0][2], tile_rows) if gated else sum(blocks(size[2], tile_rows) for size in sizes)
        self._add(f"linear_tiles_{tokens}", (blocks(rows, tokens), tiles), values, TOKEN_TILE_BYTES)

    def _gate(self, record, outs, rows):
        """The activation of a feed-forward whose gate and up lie in buffers of their own."""
        (gate, stride), (up, _) = outs
        self._add("gated_" + record.act, (blocks(rows * stride, 1024),), (gate, up, rows * stride))

    def _own_outs(self, record, rows):
        return [(self._to(step.out, rows), self._width(step.out)) for step in record.steps]

    def _outs(self, record, rows):
        """[(address, floats per row)] of each product's result."""
        if record.out is None:
            return self._own_outs(record, rows)
        address = self._at(record.out)[0] if record.mode == "add" else self._to(record.out, rows)
        return [(address, self._width(record.out))] * len(record.steps)

    def _halves(self, source, rows):
        """(pairs, factors, sums) of the input as half floats, after the launch that makes them."""
        m = self.memory
        widest = max(blocks(width, 32) * 32 for name, width in self.program.widths.items() if name != "logits")
        made = m.named("halves", 2 * m.rows * widest), m.named("factors", 4 * m.rows), m.named("sums", m.rows * widest // 4)
        self._add("halves", (rows,), (*source, source[-1], *made))
        return made

    def _slow(self, record, source, sizes, outs, rows):
        """Products in formats without a matrix kernel of their own: one launch each, weights unpacked value by value."""
        pairs, factors, _ = self._halves(source, rows)
        mode = 1 if record.mode == "add" else 0
        if record.mode == "gated":
            outs = self._own_outs(record, rows)
        for step, (kind, columns, count), (out, stride) in zip(record.steps, sizes, outs, strict=True):
            bias = Own(self._bias, step) if step.weights[1] else 0
            values = (pairs, factors, rows, columns, Own(self._matrix, step), count, bias, 1 if bias else 0, out, stride, mode)
            self._add("linear_plain_" + by_id(kind).name, (blocks(count, 4),), (*values, float(record.scale)))
        if record.mode == "gated":
            self._gate(record, outs, rows)

    # ---- attention ----

    def _attention(self, record):
        step, args = record.step, record.step.args
        q, k, v = (self._at(name)[0] for name in step.ins)
        m, eps = self.memory, next((n.args["eps"] for n in (record.q_norm, record.k_norm) if n), 0.0)
        norms = self._floats(record.q_norm), self._floats(record.k_norm)
        flags = Q_NORM * bool(record.q_norm) + K_NORM * bool(record.k_norm) + NORM_AFTER * (not record.norm_first)
        angles, pairs = 0, 0
        if record.table is not None:
            rope = self.program.ropes[record.table]
            angles, pairs = self._angles(record.table), len(rope.frequencies)
            flags += NEOX * (rope.style == "neox")
        strides = tuple(self._width(name) for name in step.ins)
        heads = args["heads"], args["kv_heads"], args["key_dim"], args["value_dim"]
        layer = Own(self._layer_at, step)
        out = self._to(step.out, self.rows)
        mask = m.positions, m.shared, m.branch, m.pages
        cap, scale, window = float(args["softcap"] or 0.0), float(args["scale"]), args["window"] or 0
        name = f"attention_tile_{heads[2]}" if heads[2] == heads[3] else ""
        if self.rows > 1:
            limit = 128 if max(heads[2:]) <= 128 else 512
            values = (q, k, v, *norms, angles, m.cells, m.wanted, m.pages, *strides, *heads, pairs, layer, flags, float(eps))
            self._add(f"attention_inputs_{limit}", (blocks(heads[0] + 2 * heads[1], 4), self.rows), values)
        if self.rows > FEW and name in self.image:
            values = (q, out, m.cells, m.wanted, *mask, strides[0], *heads[:2], layer, window, 0, scale, cap)
            self._add(name, (blocks(self.rows, 64), heads[0]), values, tile_bytes(heads[2]))
            return
        numbers, floats = (pairs, layer, window), (scale, cap, float(eps))
        self._attention_row((q, k, v, out), norms, angles, mask, strides[0], heads, numbers, flags, floats)

    def _layer_at(self, step):
        """Where a layer lies in a page of the cache, in the unit that kernels count it in."""
        return self.memory.layer_places[step.args["layer"]] // LAYER_UNIT

    def _attention_row(self, buffers, norms, angles, mask, stride, heads, numbers, flags, floats):
        """Attention split over the visible slots; with one row it also does the work of attention_inputs."""
        m = self.memory
        count, kv_heads, key_dim, value_dim = heads
        width = kv_heads * blocks(blocks(count, kv_heads), 8)
        splits = max(1, min(MOST_SPLITS, self.multiprocessors // (width * self.rows)))
        most = m.rows if self.rows > FEW else FEW
        blocks_at_once = max(self.multiprocessors, width * most)  # rows x width x splits is never more
        partials = m.named(f"partials {width}.{most}.{value_dim}", 4 * blocks_at_once * (8 * value_dim + 16))
        counters = m.zeros(f"counters {width}", 4 * m.rows * width)
        pairs, layer, window = numbers
        tile = next((t for t in (128, 64) if slot_tile_bytes(t, key_dim, value_dim) <= ATTENTION_BYTES), 32)  # slots
        flags += INPUTS + EARLY if self.rows == 1 else 0
        values = (
            *buffers, partials, counters, *norms, angles, m.cells, m.wanted, *mask, stride, *heads, pairs, layer, window,
            tile, 1, flags, *floats,
        )  # fmt: skip
        kind = key_dim if key_dim == value_dim and f"attention_row_{key_dim}" in self.image else "any"
        self._add(f"attention_row_{kind}", (width, splits, self.rows), values, slot_tile_bytes(tile, key_dim, value_dim))

    # ---- the rest ----

    def _normadd(self, record):
        norm, add = record.norm, record.add
        y, rows = self._at(norm.out)
        values = (y, self._floats(norm), self._at(add.out)[0], self._width(norm.out), float(norm.args["eps"]))
        self._add("rmsnorm_add", (rows,), (*values, float(add.args.get("scale", 1.0))))

    def _plain(self, record):
        step = record.step
        lower = getattr(self, "_step_" + step.op, None)
        if lower is None:
            raise UnsupportedError(f"the cuda backend has no operation {step.op!r}")
        lower(step)

    def _step_embed(self, step):
        tensor = self.file.tensors[step.weights[0]]
        columns = tensor.shape[0]
        values = (self.memory.stored(tensor), self.memory.ids, self._to(step.out, self.rows), columns, float(step.args["scale"]))
        self._add("embed_" + by_id(tensor.type).name, (blocks(columns, 256), self.rows), values)

    def _step_rmsnorm(self, step):
        source, rows = self._at(step.ins[0])
        values = (source, self._floats(step), self._to(step.out, rows), self._width(step.out), float(step.args["eps"]))
        self._add("rmsnorm", (rows,), values)

    def _step_head_rmsnorm(self, step):
        q, rows = self._at(step.out)
        heads, dim, eps = step.args["heads"], step.args["head_dim"], float(step.args["eps"])
        self._add("head_rmsnorm", (blocks(heads, 8), rows), (q, self._floats(step), heads, dim, eps))

    def _step_select(self, step):
        source, _ = self._at(step.out)
        columns = self._width(step.out)
        self.selected[step.out] = out = self.memory.selected(step.out)
        self._add("select", (blocks(columns, 1024), self.wanted), (source, self.memory.wanted, out, columns))

    def _elementwise(self, kernel, step, *others):
        """x = f(x, ...): one launch over all values of the buffer's rows."""
        x, rows = self._at(step.out)
        count = rows * self._width(step.out)
        self._add(kernel, (blocks(count, 1024),), (x, *others[:-1], count, *others[-1]))

    def _step_add(self, step):
        self._elementwise("add", step, self._at(step.ins[1])[0], (float(step.args.get("scale", 1.0)),))

    def _step_gated(self, step):
        self._elementwise("gated_" + step.args["act"], step, self._at(step.ins[1])[0], ())

    def _step_scale(self, step):
        self._elementwise("scale", step, (float(step.args["factor"]),))

    def _step_softcap(self, step):
        self._elementwise("softcap", step, (float(step.args["cap"]),))
