"""What is read off a row of logits: its largest value and where, the sum of exponentials, log-probabilities."""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .exponential import exponential, logarithm
from .export import device, kernel
from .quads import load4_or
from .reductions import block_sum

THREADS = 256
CHUNK = 16 * THREADS  # columns of one block
NO_ID = 0x7FFFFFFF
LOWEST = -float("inf")


@device
def better(value, token, other, other_token):
    """Whether the other is larger, or equal with a lower id; never for a NaN."""
    return other > value or (other == value and other_token < token)


@device
def warp_best(value, token):
    for step in range(5):
        other = ptx.shfl_xor(value, int32(16 >> step))
        other_token = ptx.shfl_xor_i(token, int32(16 >> step))
        if better(value, token, other, other_token):
            value, token = other, other_token
    return value, token


@device
def block_best(value, token, values, tokens):
    """The best (value, id) of the block, in every thread; `values`, `tokens`: 32 shared cells each."""
    t = uint32(cuda.threadIdx.x)
    value, token = warp_best(value, token)
    if (t & 31) == 0:
        values[uint32(t >> 5)] = value
        tokens[uint32(t >> 5)] = token
    cuda.syncthreads()
    value, token = float32(LOWEST), int32(NO_ID)
    if uint32((t & 31) << 5) < cuda.blockDim.x:
        value, token = values[uint32(t & 31)], tokens[uint32(t & 31)]
    return warp_best(value, token)


@device
def better_of(value, token, other, other_token):
    if better(value, token, other, other_token):
        value, token = other, other_token
    return value, token


@device
def reference(top):
    """What exponents are taken relative to: the largest logit, or 0 where there is none above minus infinity."""
    if top == float32(LOWEST):
        top = float32(0)
    return top


@device
def store_stats(stats, row, top, total, token):
    if token == NO_ID:
        token = int32(-1)
    ptx.stf4(stats, int32(row << 2), top, total, ptx.bits2f(uint32(token)), logarithm(total))


@device
def combine(partials, row, splits, stats):
    """One warp joins what the blocks of a row found, in a fixed order."""
    lane = int32(cuda.threadIdx.x & 31)
    base = int32(row * splits)
    top, token = float32(LOWEST), int32(NO_ID)
    i = lane
    while i < splits:
        a, _, c, _ = ptx.ldcg128(partials, int32((base + i) << 2))
        top, token = better_of(top, token, ptx.bits2f(a), int32(c))
        i = int32(i + 32)
    top, token = warp_best(top, token)
    origin = reference(top)
    total = float32(0)
    i = lane
    while i < splits:
        a, b, _, _ = ptx.ldcg128(partials, int32((base + i) << 2))
        total = ptx.fmaf(ptx.bits2f(b), exponential(float32(ptx.bits2f(a) - origin)), total)
        i = int32(i + 32)
    for step in range(5):
        total = float32(total + ptx.shfl_xor(total, int32(16 >> step)))
    if lane == 0:
        store_stats(stats, row, top, total, token)


@kernel("FFFUi", threads=THREADS)
def logits_stats(logits, stats, partials, counters, columns):
    """stats: float32[rows, 4] = largest logit, sum of e^(logit - largest), its id (int32 bits), logarithm of that sum.

    The id is the lowest among equals, -1 if every logit is NaN; NaN anywhere makes the sum NaN.
    Grid: (ceil(columns / 4096), rows). partials: float32[rows, blocks per row, 4]; counters: uint32[rows], 0 before and after."""
    values = cuda.shared.array(32, float32)
    tokens = cuda.shared.array(32, int32)
    cells = cuda.shared.array(32, float32)
    last = cuda.shared.array(1, int32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    t, row, splits = int32(cuda.threadIdx.x), int32(cuda.blockIdx.y), int32(cuda.gridDim.x)
    aligned = (columns & 3) == 0
    first = int32(cuda.blockIdx.x * CHUNK + (t << 2))
    x = cuda.local.array(16, float32)
    if aligned and (cuda.blockIdx.x + 1) * CHUNK <= columns:  # all loads in flight at once
        for k in range(4):
            at = int32(row * columns + first + k * 4 * THREADS)
            x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3] = ptx.ldf4(logits, at)
    else:
        for k in range(4):
            at = int32(first + k * 4 * THREADS)
            x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3] = load4_or(
                logits, int32(row * columns + at), int32(columns - at), aligned, float32(LOWEST)
            )
    top, token = float32(LOWEST), int32(NO_ID)
    for k in range(16):
        at = int32(first + (k >> 2) * 4 * THREADS + (k & 3))
        if at < columns:
            top, token = better_of(top, token, x[k], at)
    top, token = block_best(top, token, values, tokens)
    origin = reference(top)
    total = float32(0)
    for k in range(16):
        total = float32(total + exponential(float32(x[k] - origin)))
    total = block_sum(total, cells)
    if splits == 1:
        if t == 0:
            store_stats(stats, row, top, total, token)
    else:
        if t == 0:
            place = int32((row * splits + cuda.blockIdx.x) << 2)
            ptx.st128(partials, place, ptx.f2bits(top), ptx.f2bits(total), uint32(token), uint32(0))
            last[uint32(0)] = int32(ptx.atom_acqrel_inc(counters, row, uint32(splits - 1)))
        cuda.syncthreads()
        if last[uint32(0)] == splits - 1 and t < 32:
            combine(partials, row, splits, stats)


@kernel("FFIIFii", threads=128)
def logprobs(logits, stats, rows, ids, out, columns, count):
    """out[i] = logits[rows[i], ids[i]] less the logarithm of its row's sum of exponentials. Grid: ceil(count / 128)."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    i = int32(cuda.blockIdx.x * 128 + cuda.threadIdx.x)
    if i < count:
        row = rows[i]
        top, log_total = stats[int32(row << 2)], stats[int32((row << 2) + 3)]
        out[i] = float32(float32(logits[int32(row * columns + ids[i])] - top) - log_total)
