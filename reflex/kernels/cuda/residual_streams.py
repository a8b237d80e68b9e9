"""Four residual streams, which lie side by side in a row (ops/streams_*.py): s float32[rows, 4, n].

streams_level begins and ends them: other streams are brought to the length of the first one. Grid: (rows).
streams_predict, streams_correct and streams_inject mix them, column by column. Grid: (ceil(n / 256), rows).
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import device, kernel
from .reductions import block_sum

COUNT = 4
LEAST = 1e-30  # of a sum of squares that is divided by
LEVELERS, MIXERS = 512, 256  # threads


@device
def squares(x, first, n, tid):
    """Of the values that a thread has."""
    total, at = float32(0), tid
    while at < n:
        value = x[int32(first + at)]
        total = ptx.fmaf(value, value, total)
        at = int32(at + LEVELERS)
    return total


@kernel("FFFiii", threads=LEVELERS)
def streams_level(x, others, out, n, stride, ending):
    """The first stream of a row is x[row * stride:]; others: float32[rows, 3, n]. out: all four streams or, with `ending`, their
    mean, float32[rows, n]."""
    cells, factors = cuda.shared.array(32, float32), cuda.shared.array(COUNT, float32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    row, tid = int32(cuda.blockIdx.x), int32(cuda.threadIdx.x)
    first, beside = int32(row * stride), int32(3 * row * n)
    total = block_sum(squares(x, first, n, tid), cells)
    length = float32(total * ptx.rsqrt(max(total, float32(LEAST))))
    stream = int32(0)
    while stream < COUNT - 1:
        cuda.syncthreads()  # the cells are read
        total = block_sum(squares(others, int32(beside + stream * n), n, tid), cells)
        if tid == 0:
            factors[uint32(stream)] = float32(length * ptx.rsqrt(max(total, float32(LEAST))))
        stream = int32(stream + 1)
    cuda.syncthreads()
    f, g, h = factors[0], factors[1], factors[2]
    at = tid
    while at < n:
        a = x[int32(first + at)]
        b = float32(f * others[int32(beside + at)])
        c = float32(g * others[int32(beside + n + at)])
        d = float32(h * others[int32(beside + 2 * n + at)])
        if ending:
            out[int32(row * n + at)] = float32(float32(0.25) * float32(float32(a + b) + float32(c + d)))
        else:
            place = int32(4 * row * n + at)
            out[place] = a
            out[int32(place + n)] = b
            out[int32(place + 2 * n)] = c
            out[int32(place + 3 * n)] = d
        at = int32(at + LEVELERS)


@kernel("FFFi", threads=MIXERS)
def streams_predict(s, c, out, n):
    """c: float32[rows, 4, 4]: how much of each stream is added to a stream."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at, row = int32(cuda.blockIdx.x * MIXERS + cuda.threadIdx.x), int32(cuda.blockIdx.y)
    if at < n:
        place, mine = int32(COUNT * row * n + at), int32(COUNT * COUNT * row)
        x = cuda.local.array(COUNT, float32)
        for k in range(COUNT):
            x[k] = s[int32(place + k * n)]
        for j in range(COUNT):
            y = x[j]
            for k in range(COUNT):
                y = ptx.fmaf(c[int32(mine + COUNT * j + k)], x[k], y)
            out[int32(place + j * n)] = y


@kernel("FFFFi", threads=MIXERS)
def streams_correct(p, y, c, out, n):
    """p: the streams as predicted, y: float32[rows, n] what a block made of the first, c: float32[rows, 4]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at, row = int32(cuda.blockIdx.x * MIXERS + cuda.threadIdx.x), int32(cuda.blockIdx.y)
    if at < n:
        place = int32(COUNT * row * n + at)
        change = float32(y[int32(row * n + at)] - p[place])
        for j in range(COUNT):
            own = int32(place + j * n)
            out[own] = ptx.fmaf(float32(c[int32(COUNT * row + j)] + float32(1)), change, p[own])


@kernel("FFi", threads=MIXERS)
def streams_inject(s, y, n):
    """y: float32[rows, n], for all streams but the first; in place."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at, row = int32(cuda.blockIdx.x * MIXERS + cuda.threadIdx.x), int32(cuda.blockIdx.y)
    if at < n:
        place, value = int32(COUNT * row * n + at), y[int32(row * n + at)]
        for j in range(1, COUNT):
            own = int32(place + j * n)
            s[own] = float32(s[own] + value)
