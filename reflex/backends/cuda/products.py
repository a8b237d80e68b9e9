"""Launches of matrix products: which kernel fits the number of tokens and the block formats, and how it is divided.

One token: linear_dot or linear_stream. A few: linear_rows. More: linear_tiles, on tensor cores. Formats that are not `tiled`
(quant/fragment.py) have kernels for 32 tokens, taken again for the next 32; for many tokens their weights become half floats
first, a slab of rows at a time. Formats without fragments, and columns that are no multiple of 32: linear_plain, which unpacks
value by value. Activations of several tokens are half floats; beside weights that are sums of two of those (`summed`), each is the
sum of two as well, and what the second gives is added by a launch of its own. Part of the Lowering (lowering.py); sizes repeat
those of the kernel files.
"""

from ...quant import load
from ...quant.fragment import MANY
from ...quant.stream import WARPS
from ...quant.types import by_id, by_name, row_bytes
from .batch import Batch
from .fusion import ACTIVATIONS
from .memory import EXPANDED_AT_ONCE, up
from .parameters import Own, blocks

MODES = {"store": 0, "add": 1, "gated": 2}
LATE, BESIDE = 4, 8  # flags of linear_dot's mode: two launches of one input run at once
SEGMENTS = 3
TILE = 16  # weight rows of a tile of products of few tokens
DOT_THREADS, DOT_ROWS = 256, 2  # of a block, and rows that a strand of linear_dot holds
REGISTERS = 65536  # of a multiprocessor
FEW = 8, 16, 32  # tokens of the kernels linear_rows_*, in that order; without the last, its prompts take tiles of tokens
STEADY = 16  # tokens up to which steady batches take linear_rows: GROUPS warps to a tile add up in the order of linear_tiles_32
GROUPS = 4
PAIRED = 32  # tokens from which on their warps have two tiles each
RESIDENT = 3  # blocks of linear_rows that share a multiprocessor
SHORT = 84  # bytes of a run of linear_stream, of which a multiprocessor's only block had better take several at once
ALONE = 1024  # columns of a warp of such a block at once
TALL = 8  # units of linear_stream whose rows come together, at most
WAYS = 16, 8, 4  # places of a word of its tables in shared memory
RESERVED = 1024  # bytes of shared memory that a block takes beside its own
# kernels/cuda/linear_tiles.py: name, tokens and weight rows of a block, and blocks per multiprocessor from which it is taken
TOKEN_TILES = ("64", 64, 128, 0.5), ("32", 32, 64, 0.75), ("32_narrow", 32, 32, 0.0)
TOKEN_TILE_BYTES = 65536  # of dynamic shared memory
UNTILED, AGAIN = 32, 64  # tokens of linear_rows_* for formats that are not tiled, and up to which it is launched again
UNROUTED = 0, 0, 0, 0, 0, 0  # the last parameters of linear_rows_*, where tokens are not pairs with an expert
HALF, REST = 0, 2  # what expand_* makes of a weight
INFINITY = float("inf")
SLAB_BYTES, SLAB_ROWS = 32 << 20, 128  # of weights made half floats, which a level 2 cache still holds; a multiple of rows


def fragment_of(kind):
    """The record by which a block format has kernels on tensor cores, or None."""
    return getattr(load(by_id(kind).name), "FRAGMENT", None)


def is_summed(kind):
    """Whether a weight of this format is the sum of two half floats, so that one is not enough for an activation either."""
    record = fragment_of(kind)
    return record is not None and record.summed


def parts_of(steps, sizes, outs):
    """Products as launches take them: (step, size, (address, floats per row) of the result, whether a bias is added)."""
    return [(*part, True) for part in zip(steps, sizes, outs, strict=True)]


def sharing(gated):
    """The numbers of warps that may share a tile of linear_stream by columns."""
    return [1 << i for i in range(WARPS.bit_length() - gated)]


def area(x, y):
    return x * y


class Products(Batch):
    """Methods of Lowering for Linear records."""

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
        # without one, addresses that can be read: the compiler may load what no condition lets through, and forget it
        norm = Own(self._weight(0), record.norm) if record.norm else source
        normed, eps = (1, record.norm.args["eps"]) if record.norm else (0, 0.0)
        source = source, norm, normed, float(eps), columns
        unpacked = any(self._is_unpacked(size) for size in sizes)
        if rows == 1 and not self.reach and not unpacked and self._fits_row(sizes, record.mode == "gated"):
            self._row(record, source, sizes, outs)
        else:
            self._many(record, source, sizes, outs, rows)

    def _segments(self, parts, strides=True):
        """Parameters of up to three matrices; with `strides`, each with the floats per row of its result."""
        values = []
        for step, (kind, _, count), (out, stride), own in parts:
            biased = bool(step.weights[1]) and own
            bias = Own(self._bias, step) if biased else 0
            values += [Own(self._matrix, step), kind, count, bias, int(biased), out, *([stride] if strides else [])]
        return values + [0] * ((7 if strides else 6) * (SEGMENTS - len(parts)))

    def _tail(self, record):
        return MODES[record.mode], ACTIVATIONS.get(record.act, 0), float(record.scale)

    def _row(self, record, source, sizes, outs):
        """The product of one token: one launch for matrices that share a kernel, gate and up together if they can."""
        groups = self._groups(parts_of(record.steps, sizes, outs))
        if record.mode == "gated" and len(groups) > 1:
            apart = self._own_outs(record, 1)
            for kernel, group in self._groups(parts_of(record.steps, sizes, apart)).items():
                self._row_launch(kernel, group, source, (0, 0, 1.0))
            self._gate(record, apart, 1)
            return
        beside = record.mode == "store"  # of each other
        for number, (kernel, group) in enumerate(groups.items()):
            mode, act, scale = self._tail(record)
            if beside:
                mode += LATE * (number < len(groups) - 1) + BESIDE * (number > 0)
            self._row_launch(kernel, group, source, (mode, act, scale))

    def _groups(self, parts):
        """{kernel: parts}. A block format may have integer dot products, which are faster."""
        groups = {}
        for part in parts:
            kernel = self._dot(part[1][0])
            groups.setdefault(kernel if kernel in self.image else "linear_stream_" + by_id(part[1][0]).name, []).append(part)
        return groups

    def _fits_row(self, sizes, gated):
        """Whether a block has the shared memory for rows so long, which kernels for one token keep whole."""
        for kind, columns, _ in sizes:
            kernel = self._dot(kind)
            if kernel in self.image:
                least = 5 * columns // 2
            else:
                kernel, stream = "linear_stream_" + by_id(kind).name, load(by_id(kind).name).STREAM
                least = min(stream.shared_bytes(columns, splits, 1, 1, 1, 1) for splits in sharing(gated))
            if least + self.image.kernel(kernel).shared > self.image.most_shared_bytes:
                return False
        return True

    @staticmethod
    def _dot(kind):
        return "linear_dot_" + by_id(kind).name

    def _splits(self, sizes, gated, columns):
        """(warps that share a tile of weight rows by columns, blocks): no more blocks than run at once, where that can be."""
        tiles, most = sum(blocks(size[2], TILE) for size in sizes), RESIDENT * self.multiprocessors
        splits = 4 if gated else 8
        while splits > 1 and (splits > columns // 256 or blocks(tiles * splits, 8) > most):
            splits //= 2
        return splits, blocks(tiles * splits, 8)

    def _ways(self, record, columns, gated, room):
        """In how many places a word of a format's tables is: they take a quarter of a multiprocessor's memory at most."""
        most = self.image.multiprocessor_shared_bytes // 4
        for ways in WAYS:
            least = min(record.shared_bytes(columns, splits, 1, 1, ways, 1) for splits in sharing(gated))
            if record.table_bytes(ways) <= most and least <= room:
                return ways
        return 1

    def _rings(self, kernel, sizes, gated, columns):
        """(warps that share a tile by columns, runs, stages, places of a word of tables, units that come together), blocks and
        shared memory of linear_stream: as many runs at once as leave room for two blocks, then whichever is done first with the
        blocks that run at once. Where runs are short and no table needs several places, one block to a multiprocessor, with half
        of its memory, may be done sooner with several at once: the next launch's weights then arrive beside it."""
        record, found = load(by_id(sizes[0][0]).name).STREAM, self.image.kernel(kernel)
        tiles, whole = sum(blocks(size[2], TILE) for size in sizes), self.image.multiprocessor_shared_bytes
        own, half = RESERVED + found.shared, whole // 2 - RESERVED - found.shared
        ways = self._ways(record, columns, gated, self.image.block_shared_bytes - found.shared)
        registers = blocks(found.registers, 8) * 8 * 32 * WARPS

        def layout(splits, longest=record.runs, resident=REGISTERS // registers):
            """(time in runs, layout, blocks, shared memory)."""
            limit = half if resident == 1 else min(self.image.block_shared_bytes - found.shared, half)
            for runs, stages in ((4, 2), (2, 2), (1, 2), (1, 1)):
                shared = record.shared_bytes(columns, splits, runs, stages, ways, 1)
                fits = (runs, stages) == (1, 1) or shared <= limit
                if fits and runs <= longest and (runs == 1 or splits * runs * record.run <= up(columns, 256)):
                    break
            most = max(1, min(resident, whole // (shared + found.shared + RESERVED))) * self.multiprocessors
            units, turns = blocks(tiles * splits, WARPS), blocks(columns, splits * runs * record.run)
            if shared + found.shared > self.image.most_shared_bytes:
                return INFINITY, (splits, runs, stages, ways, 1), units, shared
            spent, grid, tall = blocks(units, most) * turns * (runs + 0.5), min(units, most), 1
            if turns == 1 and (record.tables or record.nbytes <= SHORT):
                room = min(limit, whole // blocks(grid, self.multiprocessors) - own)
                tall, stages, shared = self._together(record, columns, splits, runs, stages, ways, blocks(units, grid), room)
            return spent, (splits, runs, stages, ways, tall), grid, shared

        choices = sharing(gated)
        spent, chosen, grid, shared = min(map(layout, choices))
        if record.nbytes <= SHORT and not record.floats and all(most == 1 for *_, most in record.tables):
            runs = ALONE // record.run
            alone = [made for made in (layout(number, runs, 1) for number in choices) if made[1][1] == runs]
            if alone and min(alone)[0] < spent * blocks(grid, self.multiprocessors):
                _, chosen, grid, shared = min(alone)
        return chosen, grid, shared

    @staticmethod
    def _together(record, columns, splits, runs, stages, ways, units, room):
        """(units whose rows come together, stages, shared memory): all that a block has, where there is room; with tables,
        which take long to get ready, two or more of them."""
        most = min(units, 2 * splits, TALL)
        for tall in range(most, 1 if record.tables else most - 1, -1):
            shared = record.shared_bytes(columns, splits, runs, 1, ways, tall)
            if shared <= room:
                return tall, 1, shared
        return 1, stages, record.shared_bytes(columns, splits, runs, stages, ways, 1)

    def _shares(self, sizes, columns):
        """(warps that share two tiles by columns, blocks): whichever is done first where one block fits a multiprocessor."""
        pairs = blocks(sum(blocks(size[2], TILE) for size in sizes), 2)

        def spent(splits):
            """In steps of 256 columns; getting started takes about one."""
            return blocks(blocks(pairs * splits, 8), self.multiprocessors) * (1 + blocks(blocks(columns, 256), splits))

        splits = min((1, 2, 4, 8), key=spent)
        return splits, blocks(pairs * splits, 8)

    def _row_launch(self, kernel, parts, source, tail):
        sizes = [part[1] for part in parts]
        gated, columns = tail[0] == MODES["gated"], source[-1]
        if kernel.startswith("linear_dot"):
            splits, grid = self._strands(kernel, sizes, gated, columns)
            shared, layout = 5 * columns // 2, (splits,)
        else:
            layout, grid, shared = self._rings(kernel, sizes, gated, columns)
        self._add(kernel, (grid,), (*source, *self._segments(parts, False), *tail, *layout), shared)

    def _strands(self, kernel, sizes, gated, columns):
        """(strands that share a row by columns, blocks) of linear_dot: as many blocks as run at once, where there is work."""
        registers = blocks(self.image.kernel(kernel).registers, 8) * 8
        most = min(8, REGISTERS // (registers * DOT_THREADS)) * self.multiprocessors
        units = sizes[0][2] if gated else sum(blocks(size[2], DOT_ROWS) for size in sizes)
        splits = 1
        while 2 * splits <= min(16, blocks(columns, 1024)) and blocks(2 * splits * units, 16) <= most:
            splits *= 2
        return splits, min(blocks(splits * units, 16), most)

    def _many(self, record, source, sizes, outs, rows):
        """The product of several tokens, on tiles of them."""
        summed = any(is_summed(size[0]) for size in sizes)
        inputs = [(*made, rows, source[-1]) for made in self._halves(source, rows, summed)]
        apart = record.mode == "gated" and (sizes[0][0] != sizes[1][0] or self._is_unpacked(sizes[0]) or summed)
        if apart:  # kernels want them alike, and whole
            outs = self._own_outs(record, rows)
        tail = (0, 0, 1.0) if apart else self._tail(record)
        ways = {}
        for part in parts_of(record.steps, sizes, outs):
            ways.setdefault(self._way(part[1]), []).append(part)
        for way, parts in ways.items():
            way(inputs[0], parts, tail)
            rest = [(*part, False) for *part, _ in parts if is_summed(part[1][0])]
            if rest:
                way(inputs[1], rest, (MODES["add"], 0, tail[2]))
        if apart:
            self._gate(record, outs, rows)

    @staticmethod
    def _is_unpacked(size):
        return size[1] % 32 != 0 or fragment_of(size[0]) is None

    def _way(self, size):
        if self._is_unpacked(size):
            return self._unpacked
        return self._tiled if fragment_of(size[0]).tiled else self._untiled

    def _tiled(self, inputs, parts, tail):
        tokens, sizes = self._tokens(inputs[2]), [part[1] for part in parts]
        if all(f"linear_rows_{tokens}_{by_id(size[0]).name}" in self.image for size in sizes):
            self._few(tokens, inputs, parts, tail)
        else:
            values = (*inputs, *self._segments(parts), *tail)
            self._tiles(sizes, values, tail[0] == MODES["gated"], inputs[2])

    def _tokens(self, rows):
        """Tokens of the kernel linear_rows that serves so many, 0 where tiles of tokens do."""
        most = STEADY if self.reach else FEW[-1]
        return next((tokens for tokens in FEW if rows <= tokens <= most), 0)

    def _untiled(self, inputs, parts, tail):
        pairs, factors, rows, columns = inputs
        if rows > AGAIN or self.reach:
            for some in [parts] if tail[0] == MODES["gated"] else [[part] for part in parts]:
                self._expanded(inputs, some, tail)
            return
        for first in range(0, rows, UNTILED):
            now = pairs + first * 2 * columns, factors + 4 * first, min(UNTILED, rows - first), columns
            some = [(step, size, (out + 4 * first * stride, stride), own) for step, size, (out, stride), own in parts]
            self._few(UNTILED, now, some, tail)

    def _expanded(self, inputs, parts, tail):
        """The product of a matrix, or of gate and up together, whose weights are made half floats, a slab of rows at a time."""
        kind, columns, count = parts[0][1]
        slab = max(SLAB_ROWS, SLAB_BYTES // (2 * columns * len(parts)) & -SLAB_ROWS)
        size = 2 * min(slab, up(count, SLAB_ROWS)) * columns
        scratch = self.memory.named(f"weights as {MANY} {len(parts) * size}", len(parts) * size)
        for first in range(0, count, slab):
            rows = min(slab, count - first)
            self._slab(inputs, parts, (first, rows, scratch, size), HALF, tail)
            if is_summed(kind) and parts[0][3]:  # what is left of both factors is too small to count
                rest = [(*part, False) for *part, _ in parts]
                self._slab(inputs, rest, (first, rows, scratch, size), REST, (MODES["add"], 0, tail[2]))

    def _slab(self, inputs, parts, place, made, tail):
        """Of some rows; place: (first, count, where their half floats go, bytes of a matrix)."""
        (kind, columns, _), (first, rows, scratch, size), values = parts[0][1], place, []
        skipped = first * row_bytes(kind, columns)
        for i, (step, _, (out, stride), own) in enumerate(parts):
            weights = Own(lambda step, at=skipped: self._matrix(step) + at, step)
            biased = bool(step.weights[1]) and own
            bias = Own(lambda step, at=4 * first: self._bias(step) + at, step) if biased else 0
            grid = (blocks(rows * columns, EXPANDED_AT_ONCE),)
            self._add("expand_" + by_id(kind).name, grid, (weights, scratch + i * size, rows * columns, made))
            values += [scratch + i * size, by_name(MANY).id, rows, bias, int(biased), out + 4 * first, stride]
        values += [0] * (7 * (SEGMENTS - len(parts)))
        sizes, gated = [(by_name(MANY).id, columns, rows)] * len(parts), tail[0] == MODES["gated"]
        tokens = self._tokens(inputs[2])
        if tokens:
            self._rows(tokens, sizes, (*inputs, *values, *tail), gated, alone=True)
        else:
            self._tiles(sizes, (*inputs, *values, *tail), gated, inputs[2], alone=True)

    def _unpacked(self, inputs, parts, tail):
        """One launch each, weights unpacked value by value."""
        for step, (kind, _, count), (out, stride), own in parts:
            biased = bool(step.weights[1]) and own
            bias = Own(self._bias, step) if biased else 0
            values = (*inputs, Own(self._matrix, step), count, bias, int(biased), out, stride, tail[0], tail[2])
            self._add("linear_plain_" + by_id(kind).name, (blocks(count, 4),), values)

    def _few(self, tokens, inputs, parts, tail):
        """The product of a few tokens: a launch for each type among the matrices."""
        for kind in dict.fromkeys(part[1][0] for part in parts):
            mine = [part for part in parts if part[1][0] == kind]
            values = (*inputs, *self._segments(mine), *tail)
            self._rows(tokens, [part[1] for part in mine], values, tail[0] == MODES["gated"])

    def _rows(self, tokens, sizes, values, gated, alone=False):
        """A launch of linear_rows for matrices of one type. `alone`: the weights come from the launch in front."""
        kind, columns, _ = sizes[0]
        if self.reach:
            splits, grid = GROUPS, blocks(sum(blocks(size[2], TILE) for size in sizes) * GROUPS, 8)
        elif tokens >= PAIRED and fragment_of(kind).tiled:
            splits, grid = self._shares(sizes, columns)
        else:
            splits, grid = self._splits(sizes, gated, columns)
        # Where one block to a multiprocessor will do, no two may share one: those of a launch that begins early would.
        shared = self.image.multiprocessor_shared_bytes // 2 if tokens < PAIRED and grid <= self.multiprocessors else 0
        self._add(f"linear_rows_{tokens}_{by_id(kind).name}", (grid,), (*values, splits, *UNROUTED), shared, alone)

    def _tiles(self, sizes, values, gated, rows, alone=False):
        """The widest tiles that still keep the multiprocessors busy. `alone`: the weights come from the launch in front."""

        def grid(tokens, tile_rows):
            """(token tiles, weight tiles)."""
            counts = [2 * sizes[0][2]] if gated else [size[2] for size in sizes]
            return blocks(rows, tokens), sum(blocks(count, tile_rows) for count in counts)

        most = 32 if self.reach else rows  # the kernels for 32 tokens add up in the same order
        fitting = [tile for tile in TOKEN_TILES if tile[1] == 32 or tile[1] < 2 * most]
        busy = (tile for tile in fitting if area(*grid(*tile[1:3])) >= tile[3] * self.multiprocessors)
        name, tokens, tile_rows, _ = next(busy)
        self._add(f"linear_tiles_{name}", grid(tokens, tile_rows), values, TOKEN_TILE_BYTES, alone)

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

    def _halves(self, source, rows, split=False):
        """[(pairs, factors)] of the input as half floats, and with `split` of what these leave, behind the launch of them."""
        made = [self.memory.halves()] + ([self.memory.rest()] if split else [])
        self._add("halves", (rows,), (*source, source[-1], *made[0], int(split), *(made[1] if split else (0, 0))))
        return made
