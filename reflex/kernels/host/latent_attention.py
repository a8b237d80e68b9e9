"""Attention over a latent cache (ops/latent_attention.py): rows [slot][key_dim] float32, of which the first dimensions are values.

A token sees the slots that ops/attention.py says, in that order; a score is a sum over one row and a result a sum over the rows in
their order, so neither depends on where the rows lie.
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
    SCRATCH,
    SCRATCH_BYTES,
    SHARED,
    TOKEN_COUNT,
    TOKENS,
    VALUE_DIM,
    add_weighted,
    runs_of,
)  # fmt: skip
from ..vector import V8F, Vectors, vector

TOGETHER = 4  # rows whose sums run side by side


def _dots(count, name):
    """f(query, rows, stride, dim, out): out[j] = query[dim] . rows[j][dim] for `count` rows."""

    def codegen(context, builder, signature, arguments):
        v, b = Vectors(builder), builder
        query, rows, stride, dim, out = arguments
        query, rows, out = v.pointer(query), v.pointer(rows), v.pointer(out)
        starts = [b.gep(rows, [b.mul(stride, ir.Constant(i64, j))]) for j in range(count)]
        wide = [v.cell(v.const(V8F, 0.0)) for _ in range(count)]
        narrow = [v.cell(v.const(vector(f32, 1), 0.0)) for _ in range(count)]

        def add(offset, kind, sums):
            q = v.load(b.gep(query, [offset]), kind)
            for start, total in zip(starts, sums, strict=True):
                b.store(v.fma(q, v.load(b.gep(start, [offset]), kind), b.load(total)), total)

        whole = b.lshr(dim, ir.Constant(i64, 3))
        with v.loop(whole) as i:
            add(b.mul(i, ir.Constant(i64, 32)), V8F, wide)
        done = b.shl(whole, ir.Constant(i64, 3))
        with v.loop(b.sub(dim, done)) as i:
            add(b.mul(b.add(i, done), ir.Constant(i64, 4)), vector(f32, 1), narrow)
        for j in range(count):
            folded = v.fold(b.load(wide[j]), b.fadd)
            rest = b.extract_element(b.load(narrow[j]), ir.Constant(ir.IntType(32), 0))
            v.store(v.splat(b.fadd(folded, rest), 1), v.at(out, 4 * j))
        return context.get_dummy_value()

    def typing(typingctx, query, rows, stride, dim, out):
        return types.void(I64, I64, I64, I64, I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


dots_4 = _dots(TOGETHER, "dots_4")
dots_1 = _dots(1, "dots_1")


@helper
def latent_scores(query, keys, dim, low, high, out):
    """Scores of the slots [low, high) to out, in order; returns how many."""
    slot = low
    while slot + TOGETHER <= high:
        dots_4(query, keys + 4 * dim * slot, 4 * dim, dim, out + 4 * (slot - low))
        slot += TOGETHER
    while slot < high:
        dots_1(query, keys + 4 * dim * slot, 4 * dim, dim, out + 4 * (slot - low))
        slot += 1
    return high - low


@helper
def attend_latent(p, row, head, weights):
    """One query head of one row. weights: scratch of a float32 per slot."""
    token, batch = load_i64(load_i64(p + TOKENS) + 8 * row), load_i64(p + BATCH)
    shared, branch = load_i64(load_i64(batch + SHARED) + 8 * token), load_i64(load_i64(batch + BRANCH) + 8 * token)
    own, runs = load_i64(batch + FIRST_SLOT) + token, runs_of(batch, token)
    pieces = load_i64(runs) if runs != 0 else 0
    keys, key_dim, value_dim = load_i64(p + KEYS), load_i64(p + KEY_DIM), load_i64(p + VALUE_DIM)
    place = row * load_i64(p + HEADS) + head
    query, out = load_i64(p + QUERIES) + 4 * key_dim * place, load_i64(p + OUT) + 4 * value_dim * place
    count = latent_scores(query, keys, key_dim, 0, shared, weights)
    for k in range(pieces):
        first, end = load_i64(runs + 16 * k + 8), load_i64(runs + 16 * k + 16)
        count += latent_scores(query, keys, key_dim, first, end, weights + 4 * count)
    count += latent_scores(query, keys, key_dim, branch, own + 1, weights + 4 * count)
    array_scale(weights, weights, count, float_of_bits(load_i64(p + SCALE)))
    array_exp_minus(weights, weights, count, array_max(weights, count))
    total = array_sum(weights, count)
    for i in range(value_dim):
        store_f32(out + 4 * i, to_float(0))
    stride = 4 * key_dim
    add_weighted(weights, keys, stride, value_dim, shared, out)
    done = shared
    for k in range(pieces):
        first, end = load_i64(runs + 16 * k + 8), load_i64(runs + 16 * k + 16)
        add_weighted(weights + 4 * done, keys + stride * first, stride, value_dim, end - first, out)
        done += end - first
    add_weighted(weights + 4 * done, keys + stride * branch, stride, value_dim, count - done, out)
    array_scale(out, out, value_dim, to_float(1) / total)
    return 0


# step: 0 parameter block, as of kernels/slots.py


@export
def latent_attention(step, thread, threads):
    """Each thread takes every threads-th (row, head)."""
    p = load_i64(step)
    heads = load_i64(p + HEADS)
    items = load_i64(load_i64(p + ROWS)) * heads
    scratch = load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES)
    for k in range((items - thread + threads - 1) // threads):
        item = thread + k * threads
        row = item // heads
        attend_latent(p, row, item - row * heads, scratch)
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
