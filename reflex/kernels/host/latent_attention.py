"""Attention over a latent cache (ops/latent_attention.py): rows [slot][key_dim] float32, of which the first dimensions are values.

A token sees the slots that ops/attention.py says, in that order; a score is a sum over one row and a result a sum over the rows in
their order, so neither depends on where the rows lie, nor on how many heads read them together.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arrays import array_copy, array_exp_minus, array_max, array_scale, array_sum
from ..export import export, helper
from ..intrinsics import I64, f32, float_of_bits, i64, load_i64, store_f32, to_float
from ..slots import (
    BATCH,
    BRANCH,
    FIRST_SLOT,
    HEADS,
    KEY_DIM,
    KEYS,
    NEW_KEYS,
    OUT,
    QUERIES,
    ROWS,
    SCALE,
    SHARED,
    TOKEN_COUNT,
    TOKENS,
    VALUE_DIM,
    add_weighted,
    runs_of,
)  # fmt: skip
from ..vector import V8F, Vectors, vector

HEADS_TOGETHER, ROWS_TOGETHER = 4, 2  # whose sums run side by side: every row is read once for so many heads
PIECE = 32  # rows that stay in the second-level cache while the heads of a bunch pass over them
COLUMNS = 16  # of a result, whose sums run side by side


def _dots(heads, rows, name):
    """f(queries, keys, bytes between keys, dim, out, bytes between its lines): out[h][j] = queries[h][dim] . keys[j][dim]."""

    def codegen(context, builder, signature, arguments):
        v, b = Vectors(builder), builder
        queries, keys, stride, dim, out, line = arguments
        apart = b.mul(dim, ir.Constant(i64, 4))
        heads_at = [b.gep(v.pointer(queries), [b.mul(apart, ir.Constant(i64, h))]) for h in range(heads)]
        rows_at = [b.gep(v.pointer(keys), [b.mul(stride, ir.Constant(i64, j))]) for j in range(rows)]
        pairs = [(h, j) for h in range(heads) for j in range(rows)]
        wide = {pair: v.cell(v.const(V8F, 0.0)) for pair in pairs}
        narrow = {pair: v.cell(v.const(vector(f32, 1), 0.0)) for pair in pairs}

        def add(offset, kind, sums):
            q = [v.load(b.gep(at, [offset]), kind) for at in heads_at]
            k = [v.load(b.gep(at, [offset]), kind) for at in rows_at]
            for h, j in pairs:
                b.store(v.fma(q[h], k[j], b.load(sums[h, j])), sums[h, j])

        whole = b.lshr(dim, ir.Constant(i64, 3))
        with v.loop(whole) as i:
            add(b.mul(i, ir.Constant(i64, 32)), V8F, wide)
        done = b.shl(whole, ir.Constant(i64, 3))
        with v.loop(b.sub(dim, done)) as i:
            add(b.mul(b.add(i, done), ir.Constant(i64, 4)), vector(f32, 1), narrow)
        for h, j in pairs:
            folded = v.fold(b.load(wide[h, j]), b.fadd)
            rest = b.extract_element(b.load(narrow[h, j]), ir.Constant(ir.IntType(32), 0))
            place = b.gep(v.pointer(out), [b.mul(line, ir.Constant(i64, h))])
            v.store(v.splat(b.fadd(folded, rest), 1), v.at(place, 4 * j))
        return context.get_dummy_value()

    def typing(typingctx, queries, keys, stride, dim, out, line):
        return types.void(*[I64] * 6), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


dots_4_2 = _dots(HEADS_TOGETHER, ROWS_TOGETHER, "dots_4_2")
dots_4_1 = _dots(HEADS_TOGETHER, 1, "dots_4_1")
dots_1_2 = _dots(1, ROWS_TOGETHER, "dots_1_2")
dots_1_1 = _dots(1, 1, "dots_1_1")


@intrinsic
def columns_of_four(typingctx, weights, line, rows, stride, count, out, apart):
    """out[h][COLUMNS] += sum over j of weights[h][j] x rows[j][COLUMNS] for four heads h; line, apart: bytes between heads."""

    def codegen(context, builder, signature, arguments):
        v, b = Vectors(builder), builder
        weights, line, rows, stride, count, out, apart = arguments
        weights_at = [b.gep(v.pointer(weights), [b.mul(line, ir.Constant(i64, h))]) for h in range(HEADS_TOGETHER)]
        out_at = [b.gep(v.pointer(out), [b.mul(apart, ir.Constant(i64, h))]) for h in range(HEADS_TOGETHER)]
        places = range(0, 4 * COLUMNS, 32)
        sums = {(h, o): v.cell(v.load(v.at(at, o), V8F)) for h, at in enumerate(out_at) for o in places}
        with v.loop(count) as j:
            row = b.gep(v.pointer(rows), [b.mul(j, stride)])
            values = {o: v.load(v.at(row, o), V8F) for o in places}
            for h, at in enumerate(weights_at):
                w = v.splat(v.load(b.gep(at, [b.mul(j, ir.Constant(i64, 4))]), f32))
                for o in places:
                    b.store(v.fma(w, values[o], b.load(sums[h, o])), sums[h, o])
        for (h, o), total in sums.items():
            v.store(b.load(total), v.at(out_at[h], o))
        return context.get_dummy_value()

    return types.void(*[I64] * 7), codegen


@helper
def scores_of(queries, heads, keys, dim, low, high, out, line):
    """Scores of the slots [low, high) to out, in order, a line for each of `heads` queries; returns how many."""
    stride, begin = 4 * dim, low
    while begin < high:
        end = min(begin + PIECE, high)
        h = 0
        while h < heads:
            four = h + HEADS_TOGETHER <= heads
            query, at, slot = queries + stride * h, out + line * h + 4 * (begin - low), begin
            while slot < end:
                two = slot + ROWS_TOGETHER <= end
                if four and two:
                    dots_4_2(query, keys + stride * slot, stride, dim, at, line)
                elif four:
                    dots_4_1(query, keys + stride * slot, stride, dim, at, line)
                elif two:
                    dots_1_2(query, keys + stride * slot, stride, dim, at, line)
                else:
                    dots_1_1(query, keys + stride * slot, stride, dim, at, line)
                count = ROWS_TOGETHER if two else 1
                slot, at = slot + count, at + 4 * count
            h += HEADS_TOGETHER if four else 1
        begin = end
    return high - low


@helper
def add_values(weights, line, heads, rows, stride, dim, count, out):
    """out[h][dim] += weights[h][count] . rows[count][dim] for each of `heads` heads."""
    whole, begin = dim // COLUMNS * COLUMNS, 0
    while begin < count:
        some, h = min(PIECE, count - begin), 0
        at = rows + stride * begin
        while h < heads:
            own, result = weights + line * h + 4 * begin, out + 4 * dim * h
            if h + HEADS_TOGETHER <= heads:
                for c in range(0, whole, COLUMNS):
                    columns_of_four(own, line, at + 4 * c, stride, some, result + 4 * c, 4 * dim)
                if whole < dim:
                    for i in range(HEADS_TOGETHER):
                        add_weighted(own + line * i, at + 4 * whole, stride, dim - whole, some, result + 4 * (dim * i + whole))
                h += HEADS_TOGETHER
            else:
                add_weighted(own, at, stride, dim, some, result)
                h += 1
        begin += some
    return 0


@helper
def attend_latent(p, row, head, heads, weights, line):
    """Some query heads of one row. weights: scratch of a float32 per slot for each of them, `line` bytes apart."""
    token, batch = load_i64(load_i64(p + TOKENS) + 8 * row), load_i64(p + BATCH)
    shared, branch = load_i64(load_i64(batch + SHARED) + 8 * token), load_i64(load_i64(batch + BRANCH) + 8 * token)
    own, runs = load_i64(batch + FIRST_SLOT) + token, runs_of(batch, token)
    pieces = load_i64(runs) if runs != 0 else 0
    keys, key_dim, value_dim = load_i64(p + KEYS), load_i64(p + KEY_DIM), load_i64(p + VALUE_DIM)
    place = row * load_i64(p + HEADS) + head
    queries, out = load_i64(p + QUERIES) + 4 * key_dim * place, load_i64(p + OUT) + 4 * value_dim * place
    count = scores_of(queries, heads, keys, key_dim, 0, shared, weights, line)
    for k in range(pieces):
        first, end = load_i64(runs + 16 * k + 8), load_i64(runs + 16 * k + 16)
        count += scores_of(queries, heads, keys, key_dim, first, end, weights + 4 * count, line)
    count += scores_of(queries, heads, keys, key_dim, branch, own + 1, weights + 4 * count, line)
    for h in range(heads):
        at = weights + line * h
        array_scale(at, at, count, float_of_bits(load_i64(p + SCALE)))
        array_exp_minus(at, at, count, array_max(at, count))
        for i in range(value_dim):
            store_f32(out + 4 * (value_dim * h + i), to_float(0))
    stride = 4 * key_dim
    add_values(weights, line, heads, keys, stride, value_dim, shared, out)
    done = shared
    for k in range(pieces):
        first, end = load_i64(runs + 16 * k + 8), load_i64(runs + 16 * k + 16)
        add_values(weights + 4 * done, line, heads, keys + stride * first, stride, value_dim, end - first, out)
        done += end - first
    add_values(weights + 4 * done, line, heads, keys + stride * branch, stride, value_dim, count - done, out)
    for h in range(heads):
        at = out + 4 * value_dim * h
        array_scale(at, at, value_dim, to_float(1) / array_sum(weights + line * h, count))
    return 0


@helper
def heads_together(rows, heads, threads, most):
    """How many heads of a row a thread takes at a time: as many as leave something for every thread."""
    if rows * heads >= most * threads:
        return most
    return HEADS_TOGETHER if rows * heads >= HEADS_TOGETHER * threads else 1


# step: 0 parameter block, as of kernels/slots.py, 1 scratch, 2 bytes of it for each thread, 3 heads that it has room for


@export
def latent_attention(step, thread, threads):
    """Each thread takes every threads-th (row, bunch of heads)."""
    p = load_i64(step)
    rows, heads = load_i64(load_i64(p + ROWS)), load_i64(p + HEADS)
    size, most = load_i64(step + 16), load_i64(step + 24)
    together = heads_together(rows, heads, threads, most)
    bunches = (heads + together - 1) // together
    scratch, line = load_i64(step + 8) + thread * size, size // most // 64 * 64
    for k in range((rows * bunches - thread + threads - 1) // threads):
        item = thread + k * threads
        row = item // bunches
        head = together * (item - row * bunches)
        attend_latent(p, row, head, min(together, heads - head), scratch, line)
    return 0


@export
def append_latent(step, thread, threads):
    """The row of every token of the batch into its slot; each thread takes every threads-th token."""
    p = load_i64(step)
    dim = load_i64(p + KEY_DIM)
    keys = load_i64(p + KEYS) + 4 * dim * load_i64(load_i64(p + BATCH) + FIRST_SLOT)
    tokens = load_i64(load_i64(p + TOKEN_COUNT))
    for k in range((tokens - thread + threads - 1) // threads):
        token = thread + k * threads
        array_copy(keys + 4 * dim * token, load_i64(p + NEW_KEYS) + 4 * dim * token, dim)
    return 0
