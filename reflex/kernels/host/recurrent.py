"""Steps with a state: convolutions (ops/conv.py), delta rules (ops/delta_rule.py), scans (ops/state_scan.py).

What a thread computes, it computes for all tokens: channels of a convolution, columns of a head's matrix of state. Columns do not
mix, so a tile of them stays in the first-level cache while the tokens pass, one after another; a row's result is bit for bit
the same however a text is cut into strands.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arrays import array_copy, array_map
from ..export import export, helper
from ..intrinsics import F32, I64, f32, float_of_bits, i64, load_f32, load_i64, store_f32, to_float
from ..linear import share
from ..logits import exponential
from ..vector import Vectors, vector

MOST_TAPS = 64  # as arch/recurrent.py has it
TILE = 32  # columns of a matrix of state that a thread keeps together
STRAND_BYTES = 32  # first row, count, source, destination, after their number

_decays = array_map("_decays", 1, 1, lambda v, x, s: v.exp(v.b.fmul(x[0], s[0])))


@helper
def strand(strands, index, word):
    return load_i64(strands + 8 + STRAND_BYTES * index + 8 * word)


def _filtered(lanes, name):
    """f(x, tail, weights, bias or 0, out, stride, rows, taps, next or 0): the convolution of `lanes` channels over a strand, and
    the tail that it leaves; `stride` bytes between rows of x, out and tails, weights of a channel lie together."""
    kind = vector(f32, lanes)

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        x, tail, weights, bias, out, stride, rows, taps, after = arguments
        zero, one = ir.Constant(i64, 0), ir.Constant(i64, 1)
        before = builder.sub(taps, one)
        spread = v.space(4 * lanes * MOST_TAPS)
        with v.loop(taps) as j:
            source = v.pointer(builder.add(weights, builder.mul(j, ir.Constant(i64, 4))))
            step = builder.mul(taps, ir.Constant(i64, 4))
            lane = [v.load(v.at(source, builder.mul(step, ir.Constant(i64, i))), f32) for i in range(lanes)]
            v.store(v.gather(lane), v.at(spread, builder.mul(j, ir.Constant(i64, 4 * lanes))))

        def place(index):
            """Address of row index - (taps - 1) of the strand: of the tail where that is before its first."""
            row = builder.sub(index, before)
            early = builder.icmp_signed("<", row, zero)
            base, offset = builder.select(early, tail, x), builder.select(early, index, row)
            return v.pointer(builder.add(base, builder.mul(offset, stride)))

        start = v.cell(v.const(kind, 0.0))
        with builder.if_then(builder.icmp_signed("!=", bias, zero)):
            builder.store(v.load(v.pointer(bias), kind), start)
        total = v.cell(v.const(kind, 0.0))
        with v.loop(rows) as row:
            builder.store(builder.load(start), total)
            with v.loop(taps) as j:
                w = v.load(v.at(spread, builder.mul(j, ir.Constant(i64, 4 * lanes))), kind)
                value = v.load(place(builder.add(row, j)), kind)
                builder.store(v.fma(w, value, builder.load(total)), total)
            v.store(builder.load(total), v.pointer(builder.add(out, builder.mul(row, stride))))
        left = builder.select(builder.icmp_signed("!=", after, zero), before, zero)
        with v.loop(left) as j:  # upwards, since the two tails may be one
            value = v.load(place(builder.add(rows, j)), kind)
            v.store(value, v.pointer(builder.add(after, builder.mul(j, stride))))
        return context.get_dummy_value()

    def typing(typingctx, x, tail, weights, bias, out, stride, rows, taps, after):
        return types.void(*[I64] * 9), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


filtered_8 = _filtered(8, "filtered_8")
filtered_1 = _filtered(1, "filtered_1")


# step: 0 input, 1 weights, 2 bias or 0, 3 output, 4 columns, 5 taps, 6 strands, 7 states, 8 bytes per place, 9 zeros


@export
def conv(step, thread, threads):
    """Each thread computes its share of the columns, for every strand."""
    columns, taps, strands = load_i64(step + 32), load_i64(step + 40), load_i64(step + 48)
    first, last = share(columns, thread, threads), share(columns, thread + 1, threads)
    stride = 4 * columns
    for s in range(load_i64(strands)):
        row, count = strand(strands, s, 0), strand(strands, s, 1)
        source, destination = strand(strands, s, 2), strand(strands, s, 3)
        x, out = load_i64(step) + row * stride, load_i64(step + 24) + row * stride
        tail, after = load_i64(step + 72), 0
        if source >= 0:
            tail = load_i64(step + 56) + source * load_i64(step + 64)
        if destination >= 0:
            after = load_i64(step + 56) + destination * load_i64(step + 64)
        c = first
        while c < last:
            lanes = 8 if c + 8 <= last else 1
            at, bias = 4 * c, load_i64(step + 16)
            bias = bias + at if bias != 0 else 0
            w, kept = load_i64(step + 8) + at * taps, after + at if after != 0 else 0
            if lanes == 8:
                filtered_8(x + at, tail + at, w, bias, out + at, stride, count, taps, kept)
            else:
                filtered_1(x + at, tail + at, w, bias, out + at, stride, count, taps, kept)
            c += lanes
    return 0


class _Tile:
    """What the two recurrences do with a tile of `width` columns in the code that a builder makes."""

    def __init__(self, builder, width):
        self.v, self.b = Vectors(builder), builder
        self.lanes = 8 if width >= 8 else 1
        self.places = range(0, 4 * width, 4 * self.lanes)
        self.kind = vector(f32, self.lanes)
        self.row_bytes = 4 * width

    def cells(self):
        return [self.v.cell(self.v.const(self.kind, 0.0)) for _ in self.places]

    def lanes_of(self, address):
        pointer = self.v.pointer(address)
        return [self.v.load(self.v.at(pointer, o), self.kind) for o in self.places]

    def number(self, address, index, size=4):
        """Entry `index` of float32, `size` bytes apart, in all lanes."""
        size = ir.Constant(i64, size) if isinstance(size, int) else size
        return self.v.splat(self.v.load(self.v.pointer(self.b.add(address, self.b.mul(index, size))), f32), self.lanes)

    def row(self, tile, index):
        return self.v.pointer(self.b.add(tile, self.b.mul(index, ir.Constant(i64, self.row_bytes))))

    def store(self, values, address):
        for value, o in zip(values, self.places, strict=True):
            self.v.store(value, self.v.at(self.v.pointer(address), o))


def _delta_token(width, name):
    """f(tile, rows, k, q, decays, bytes between decays, v, out, beta, scale): one token of the delta rule."""

    def codegen(context, builder, signature, arguments):
        t, b = _Tile(builder, width), builder
        v = t.v
        tile, rows, k, q, decays, apart, values, out, beta, scale = arguments
        seen, found = t.cells(), t.cells()
        with v.loop(rows) as i:
            g, key, row = t.number(decays, i, apart), t.number(k, i), t.row(tile, i)
            for o, total in zip(t.places, seen, strict=True):
                s = b.fmul(g, v.load(v.at(row, o), t.kind))
                v.store(s, v.at(row, o))
                b.store(v.fma(key, s, b.load(total)), total)
        beta = v.splat(beta, t.lanes)
        errors = [
            b.fmul(beta, b.fsub(value, b.load(total))) for value, total in zip(t.lanes_of(values), seen, strict=True)
        ]
        with v.loop(rows) as i:
            key, query, row = t.number(k, i), t.number(q, i), t.row(tile, i)
            for o, error, total in zip(t.places, errors, found, strict=True):
                s = v.fma(key, error, v.load(v.at(row, o), t.kind))
                v.store(s, v.at(row, o))
                b.store(v.fma(query, s, b.load(total)), total)
        scale = v.splat(scale, t.lanes)
        t.store([b.fmul(scale, b.load(total)) for total in found], out)
        return context.get_dummy_value()

    def typing(typingctx, tile, rows, k, q, decays, apart, values, out, beta, scale):
        return types.void(*[I64] * 8, F32, F32), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


def _scan_token(width, name):
    """f(tile, rows, B, C, u, out, decay, dt, d): one token of the scan."""

    def codegen(context, builder, signature, arguments):
        t, b = _Tile(builder, width), builder
        v = t.v
        tile, rows, keys, queries, values, out, decay, dt, d = arguments
        decay, dt, d = (v.splat(x, t.lanes) for x in (decay, dt, d))
        found, own = t.cells(), t.lanes_of(values)
        added = [b.fmul(dt, value) for value in own]
        with v.loop(rows) as i:
            key, query, row = t.number(keys, i), t.number(queries, i), t.row(tile, i)
            for o, value, total in zip(t.places, added, found, strict=True):
                s = v.fma(key, value, b.fmul(decay, v.load(v.at(row, o), t.kind)))
                v.store(s, v.at(row, o))
                b.store(v.fma(query, s, b.load(total)), total)
        t.store([v.fma(d, value, b.load(total)) for value, total in zip(own, found, strict=True)], out)
        return context.get_dummy_value()

    def typing(typingctx, tile, rows, keys, queries, values, out, decay, dt, d):
        return types.void(*[I64] * 6, F32, F32, F32), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


delta_32, delta_8, delta_1 = (_delta_token(n, f"delta_{n}") for n in (TILE, 8, 1))
scan_32, scan_8, scan_1 = (_scan_token(n, f"scan_{n}") for n in (TILE, 8, 1))


@helper
def width_at(column, end):
    """Columns of the tile that begins there."""
    return TILE if column + TILE <= end else 8 if column + 8 <= end else 1


@helper
def fetch(tile, width, state, rows, stride):
    """The columns of a state into a tile; zeros where `state` is 0."""
    for i in range(rows):
        if state != 0:
            array_copy(tile + 4 * width * i, state + stride * i, width)
        else:
            for j in range(width):
                store_f32(tile + 4 * (width * i + j), to_float(0))
    return 0


@helper
def leave(tile, width, state, rows, stride):
    for i in range(rows):
        array_copy(state + stride * i, tile + 4 * width * i, width)
    return 0


# Addresses in the parameters of a recurrence (int64 each); KEY_HEADS are the groups of a scan, KEY_DIM the rows of a state.
(STRANDS, PLACE_BYTES, HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM, GROUPED, CHANNELS, SCALE, SCRATCH, SCRATCH_BYTES) = (
    8 * i for i in range(11)
)


@helper
def state_at(states, p, place, head, column):
    """Address of a column of a head's matrix in a place; 0 for none."""
    if place < 0:
        return 0
    rows = load_i64(p + KEY_DIM) * head
    return states + place * load_i64(p + PLACE_BYTES) + 4 * (rows * load_i64(p + VALUE_DIM) + column)


@helper
def key_head(p, head):
    if load_i64(p + GROUPED) != 0:
        return head // (load_i64(p + HEADS) // load_i64(p + KEY_HEADS))
    return head % load_i64(p + KEY_HEADS)


@helper
def delta_columns(step, p, head, column, width, scratch):
    """All strands over `width` columns of one head."""
    strands, heads, rows, columns = load_i64(p + STRANDS), load_i64(p + HEADS), load_i64(p + KEY_DIM), load_i64(p + VALUE_DIM)
    keys, source = load_i64(p + KEY_HEADS), key_head(p, head)
    decays, tile = scratch, scratch + 4 * rows
    a, scale = load_f32(load_i64(step + 48) + 4 * head), float_of_bits(load_i64(p + SCALE))
    for s in range(load_i64(strands)):
        first = strand(strands, s, 0)
        before = state_at(load_i64(step + 56), p, strand(strands, s, 2), head, column)
        after = state_at(load_i64(step + 56), p, strand(strands, s, 3), head, column)
        fetch(tile, width, before, rows, 4 * columns)
        for token in range(first, first + strand(strands, s, 1)):
            item = token * heads + head
            if load_i64(p + CHANNELS) != 0:
                _decays(decays, load_i64(step + 24) + 4 * rows * item, rows, a)
                apart = 4
            else:
                store_f32(decays, exponential(a * load_f32(load_i64(step + 24) + 4 * item)))
                apart = 0
            at = 4 * rows * (token * keys + source)
            q, k, beta = load_i64(step) + at, load_i64(step + 8) + at, load_f32(load_i64(step + 32) + 4 * item)
            place = 4 * (columns * item + column)
            v, out = load_i64(step + 16) + place, load_i64(step + 40) + place
            if width == TILE:
                delta_32(tile, rows, k, q, decays, apart, v, out, beta, scale)
            elif width == 8:
                delta_8(tile, rows, k, q, decays, apart, v, out, beta, scale)
            else:
                delta_1(tile, rows, k, q, decays, apart, v, out, beta, scale)
        if after != 0:
            leave(tile, width, after, rows, 4 * columns)
    return 0


# step: 0 q, 1 k, 2 v, 3 dt, 4 beta, 5 output, 6 a, 7 states, 8 parameters


@export
def delta_rule(step, thread, threads):
    """Each thread takes every threads-th (head, tile of columns)."""
    p = load_i64(step + 64)
    scratch = load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES)
    columns = load_i64(p + VALUE_DIM)
    tiles = (columns + TILE - 1) // TILE
    for k in range((load_i64(p + HEADS) * tiles - thread + threads - 1) // threads):
        item = thread + k * threads
        head = item // tiles
        column = TILE * (item - head * tiles)
        end = min(column + TILE, columns)
        while column < end:
            width = width_at(column, end)
            delta_columns(step, p, head, column, width, scratch)
            column += width
    return 0


@helper
def scan_columns(step, p, head, column, width, tile):
    """All strands over `width` columns of one head."""
    strands, heads, rows, columns = load_i64(p + STRANDS), load_i64(p + HEADS), load_i64(p + KEY_DIM), load_i64(p + VALUE_DIM)
    groups, source = load_i64(p + KEY_HEADS), key_head(p, head)
    a, d = load_f32(load_i64(step + 40) + 4 * head), load_f32(load_i64(step + 48) + 4 * head)
    for s in range(load_i64(strands)):
        first = strand(strands, s, 0)
        before = state_at(load_i64(step + 56), p, strand(strands, s, 2), head, column)
        after = state_at(load_i64(step + 56), p, strand(strands, s, 3), head, column)
        fetch(tile, width, before, rows, 4 * columns)
        for token in range(first, first + strand(strands, s, 1)):
            item = token * heads + head
            dt = load_f32(load_i64(step + 24) + 4 * item)
            decay, at = exponential(a * dt), 4 * rows * (token * groups + source)
            b, c = load_i64(step + 8) + at, load_i64(step + 16) + at
            place = 4 * (columns * item + column)
            u, out = load_i64(step) + place, load_i64(step + 32) + place
            if width == TILE:
                scan_32(tile, rows, b, c, u, out, decay, dt, d)
            elif width == 8:
                scan_8(tile, rows, b, c, u, out, decay, dt, d)
            else:
                scan_1(tile, rows, b, c, u, out, decay, dt, d)
        if after != 0:
            leave(tile, width, after, rows, 4 * columns)
    return 0


# step: 0 u, 1 B, 2 C, 3 dt, 4 output, 5 a, 6 d, 7 states, 8 parameters


@export
def state_scan(step, thread, threads):
    """Each thread takes every threads-th (head, tile of columns)."""
    p = load_i64(step + 64)
    scratch = load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES)
    columns = load_i64(p + VALUE_DIM)
    tiles = (columns + TILE - 1) // TILE
    for k in range((load_i64(p + HEADS) * tiles - thread + threads - 1) // threads):
        item = thread + k * threads
        head = item // tiles
        column = TILE * (item - head * tiles)
        end = min(column + TILE, columns)
        while column < end:
            width = width_at(column, end)
            scan_columns(step, p, head, column, width, scratch)
            column += width
    return 0
