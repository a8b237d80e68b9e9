"""Keys and values into the cache, and attention over it (ops/attention.py).

Cache of one layer, float32: keys [kv_head][slot / 32][key_dim][32 slots], so that 32 scores are computed with whole
vectors and no horizontal sums; values [kv_head][slot][value_dim].

A token sees the slots [0, shared), those of its runs and [branch, own]. Scores, exponentials and sums run over the
visible keys in that order, wherever they lie in the cache, so a result is bit for bit that of the same text
evaluated alone.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..arrays import array_copy, array_exp_minus, array_max, array_scale, array_softcap, array_sum
from ..export import export, helper
from ..intrinsics import I64, f32, float_of_bits, i64, load_f32, load_i64, store_f32, to_float
from ..slots import (
    BATCH,
    BRANCH,
    CAPACITY,
    FIRST_SLOT,
    HEADS,
    KEY_DIM,
    KEYS,
    KV_HEADS,
    NEW_KEYS,
    NEW_VALUES,
    OUT,
    POSITIONS,
    QUERIES,
    ROWS,
    SCALE,
    SCRATCH,
    SCRATCH_BYTES,
    SHARED,
    SINKS,
    SOFTCAP,
    TOKEN_COUNT,
    TOKENS,
    VALUE_DIM,
    VALUES,
    WINDOW,
    add_weighted,
    first_visible,
    runs_of,
)  # fmt: skip
from ..vector import V8F, Vectors

SLOTS = 32  # slots per key block


@intrinsic
def block_scores(typingctx, query, block, dim, out):
    """out[32] = query[dim] . keys[dim][32]."""

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        query, block, dim, out = v.pointer(arguments[0]), v.pointer(arguments[1]), arguments[2], v.pointer(arguments[3])
        sums = [v.cell(v.const(V8F, 0.0)) for _ in range(4)]
        with v.loop(dim) as d:
            q = v.splat(v.load(builder.gep(query, [builder.mul(d, ir.Constant(i64, 4))]), f32))
            row = builder.gep(block, [builder.mul(d, ir.Constant(i64, 4 * SLOTS))])
            for k in range(4):
                builder.store(v.fma(q, v.load(v.at(row, 32 * k), V8F), builder.load(sums[k])), sums[k])
        for k in range(4):
            v.store(builder.load(sums[k]), v.at(out, 32 * k))
        return context.get_dummy_value()

    return types.void(I64, I64, I64, I64), codegen


@helper
def range_scores(query, keys, dim, low, high, block_out, out):
    """Scores of slots [low, high) to out, in order."""
    slot = low
    while slot < high:
        skip = slot & (SLOTS - 1)
        count = min(SLOTS - skip, high - slot)
        at = out + 4 * (slot - low)
        block = keys + (slot - skip) * 4 * dim
        if count == SLOTS:
            block_scores(query, block, dim, at)
        else:
            block_scores(query, block, dim, block_out)
            array_copy(at, block_out + 4 * skip, count)
        slot += count
    return 0


@helper
def run_scores(query, keys, dim, runs, low, block_out, out):
    """Scores of the runs' slots to out, without those of positions before `low` of the first of them; their count."""
    done = 0
    for k in range(load_i64(runs)):
        first, end = load_i64(runs + 16 * k + 8), load_i64(runs + 16 * k + 16)
        skip = min(low, end - first)
        low -= skip
        range_scores(query, keys, dim, first + skip, end, block_out, out + 4 * done)
        done += end - first - skip
    return done


@helper
def add_runs(weights, values, dim, runs, low, out):
    """out[dim] += weights . values of the slots of `run_scores`."""
    for k in range(load_i64(runs)):
        first, end = load_i64(runs + 16 * k + 8), load_i64(runs + 16 * k + 16)
        skip = min(low, end - first)
        low -= skip
        count = end - first - skip
        add_weighted(weights, values + 4 * dim * (first + skip), 4 * dim, dim, count, out)
        weights += 4 * count
    return 0


@helper
def attend(p, row, head, scratch):
    """One query head of one row."""
    token = load_i64(load_i64(p + TOKENS) + 8 * row)
    batch = load_i64(p + BATCH)
    position = load_i64(load_i64(batch + POSITIONS) + 8 * token)
    shared, branch = load_i64(load_i64(batch + SHARED) + 8 * token), load_i64(load_i64(batch + BRANCH) + 8 * token)
    own, runs = load_i64(batch + FIRST_SLOT) + token, runs_of(batch, token)
    low = first_visible(position, load_i64(p + WINDOW))
    branch = max(branch, own - (position - low))
    first = max(0, shared - low)
    before = max(0, low - shared)  # hidden positions behind the first range
    count = first + own + 1 - branch
    kv_head = head // (load_i64(p + HEADS) // load_i64(p + KV_HEADS))
    key_dim, value_dim, capacity = load_i64(p + KEY_DIM), load_i64(p + VALUE_DIM), load_i64(p + CAPACITY)
    keys = load_i64(p + KEYS) + kv_head * capacity * 4 * key_dim
    values = load_i64(p + VALUES) + kv_head * capacity * 4 * value_dim
    query = load_i64(p + QUERIES) + 4 * key_dim * (row * load_i64(p + HEADS) + head)
    weights = scratch + 4 * SLOTS
    range_scores(query, keys, key_dim, low, low + first, scratch, weights)
    middle = run_scores(query, keys, key_dim, runs, before, scratch, weights + 4 * first) if runs != 0 else 0
    range_scores(query, keys, key_dim, branch, own + 1, scratch, weights + 4 * (first + middle))
    count += middle
    array_scale(weights, weights, count, float_of_bits(load_i64(p + SCALE)))
    cap = float_of_bits(load_i64(p + SOFTCAP))
    if cap > to_float(0):
        array_softcap(weights, weights, count, cap)
    scores = count
    if load_i64(p + SINKS) != 0:
        store_f32(weights + 4 * count, load_f32(load_i64(p + SINKS) + 4 * head))
        scores += 1
    array_exp_minus(weights, weights, scores, array_max(weights, scores))
    total = array_sum(weights, scores)
    out = load_i64(p + OUT) + 4 * value_dim * (row * load_i64(p + HEADS) + head)
    for i in range(value_dim):
        store_f32(out + 4 * i, to_float(0))
    add_weighted(weights, values + 4 * value_dim * low, 4 * value_dim, value_dim, first, out)
    if runs != 0:
        add_runs(weights + 4 * first, values, value_dim, runs, before, out)
    last = first + middle
    add_weighted(weights + 4 * last, values + 4 * value_dim * branch, 4 * value_dim, value_dim, count - last, out)
    array_scale(out, out, value_dim, to_float(1) / total)
    return 0


@export
def attention(step, thread, threads):
    """step: 0 parameter block. Each thread takes every threads-th (row, head)."""
    p = load_i64(step)
    heads = load_i64(p + HEADS)
    items = load_i64(load_i64(p + ROWS)) * heads
    scratch = load_i64(p + SCRATCH) + thread * load_i64(p + SCRATCH_BYTES)
    for k in range((items - thread + threads - 1) // threads):
        item = thread + k * threads
        row = item // heads
        attend(p, row, item - row * heads, scratch)
    return 0


@export
def append(step, thread, threads):
    """Keys and values of every token of the batch into their slots; each thread takes every threads-th (token, kv head)."""
    p = load_i64(step)
    heads, key_dim, value_dim = load_i64(p + KV_HEADS), load_i64(p + KEY_DIM), load_i64(p + VALUE_DIM)
    capacity = load_i64(p + CAPACITY)
    items = load_i64(load_i64(p + TOKEN_COUNT)) * heads
    for k in range((items - thread + threads - 1) // threads):
        item = thread + k * threads
        token = item // heads
        head = item - token * heads
        slot = load_i64(load_i64(p + BATCH) + FIRST_SLOT) + token
        source = load_i64(p + NEW_KEYS) + 4 * key_dim * item
        place = load_i64(p + KEYS) + head * capacity * 4 * key_dim + (slot & -SLOTS) * 4 * key_dim + 4 * (slot & (SLOTS - 1))
        for d in range(key_dim):
            store_f32(place + 4 * SLOTS * d, load_f32(source + 4 * d))
        array_copy(
            load_i64(p + VALUES) + 4 * value_dim * (head * capacity + slot),
            load_i64(p + NEW_VALUES) + 4 * value_dim * item,
            value_dim,
        )
    return 0
