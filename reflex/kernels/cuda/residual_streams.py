"""Four residual streams, which lie side by side in a row (ops/streams_*.py): s float32[rows, 4, n]; sparsify (ops/sparsify.py) of
the gates that models with them have.

streams_level begins and ends them: other streams are brought to the length of the first one. Grid of this and of sparsify: (rows).
streams_predict, streams_correct and streams_inject mix them, column by column. Grid: (ceil(n / 256), rows).
"""

from numba import cuda
from numba.types import float32, int32, uint32

from . import ptx
from .export import kernel
from .reductions import block_sum

COUNT = 4
LEAST = 1e-30  # of a sum of squares that is divided by
WIDE, MIXERS = 1024, 256  # threads


@kernel("FFFiii", threads=WIDE)
def streams_level(x, others, out, n, stride, ending):
    """The first stream of a row is x[row * stride:]; others: float32[rows, 3, n]. out: all four streams or, with `ending`, their
    mean, float32[rows, n]."""
    cells, factors = cuda.shared.array(32, float32), cuda.shared.array(COUNT, float32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    row, tid = int32(cuda.blockIdx.x), int32(cuda.threadIdx.x)
    source, start, length = x, int32(row * stride), float32(1)
    stream = int32(0)
    while stream < COUNT:
        total, at = float32(0), tid
        while at < n:
            value = source[int32(start + at)]
            total = ptx.fmaf(value, value, total)
            at = ptx.opaque(int32(at + WIDE))
        total = block_sum(total, cells)
        inverse = ptx.rsqrt(max(total, float32(LEAST)))
        if stream == 0:
            length, inverse = float32(total * inverse), float32(1)
        else:
            inverse = float32(length * inverse)
        if tid == 0:
            factors[uint32(stream)] = inverse
        source, start = others, int32((3 * row + stream) * n)
        stream = ptx.opaque(int32(stream + 1))  # once in the code is enough
        cuda.syncthreads()  # all have read the cells
    at = tid
    while at < n:
        mean, start = float32(0), int32(row * stride + at)
        for stream in range(COUNT):
            source, place = others, int32((3 * row + stream - 1) * n + at)
            if stream == 0:
                source, place = x, start
            value = float32(factors[uint32(stream)] * source[place])
            mean = float32(mean + value)
            if ending == 0:
                out[int32((COUNT * row + stream) * n + at)] = value
        if ending != 0:
            out[int32(row * n + at)] = float32(mean * float32(0.25))
        at = ptx.opaque(int32(at + WIDE))


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


@kernel("Fif", threads=WIDE)
def sparsify(x, n, deviations):
    """x: float32[rows, n], becomes max(x - mean - deviations * standard deviation, 0)."""
    cells = cuda.shared.array(32, float32)
    ptx.pdl_launch()
    ptx.pdl_wait()
    row, tid = int32(cuda.blockIdx.x * n), int32(cuda.threadIdx.x)
    mean, variance, squared = float32(0), float32(0), int32(0)
    while squared < 2:
        total, at = float32(0), tid
        while at < n:
            apart = float32(x[int32(row + at)] - mean)
            if squared != 0:
                apart = float32(apart * apart)
            total = float32(total + apart)
            at = int32(at + WIDE)
        total = block_sum(total, cells)
        if squared == 0:
            mean = float32(total / float32(n))
        variance = float32(total / float32(n - 1))
        squared = ptx.opaque(int32(squared + 1))
        cuda.syncthreads()  # all have read the cells
    least = ptx.fmaf(deviations, float32(variance * ptx.rsqrt(max(variance, float32(LEAST)))), mean)
    at = tid
    while at < n:
        place = int32(row + at)
        x[place] = max(float32(x[place] - least), float32(0))
        at = int32(at + WIDE)
