"""halves: rows of activations as scaled float16, the input of matrix products of more than one row.

A row h = x (when `normed`: x / its root mean square * the norm's weights) becomes xh = float16(h * 2**-e), with e such that the
largest magnitude lies in [2**14, 2**15) (e = 0 for a zero row), and factor = 2**e: a product of xh needs only a multiplication by
`factor`. So h is rounded to 11 bits where ggml rounds it for weights of float16, and to the same numbers. With `split` xl is what
that leaves, times 2**11: h = factor * xh + 2**-11 * factor * xl, to 22 bits, with the second of these factors in `rest`. Within
each four values the order is 0, 2, 1, 3. Rows are padded to a multiple of 32 columns with zeros.

Grid: (rows). x has `stride` floats per row; xh and xl padded / 2 words.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device, kernel

THREADS = 256
WARPS = THREADS // 32
VALUES = 8  # a thread takes that many at a time
DEEP, AHEAD = 4, 16  # vectors of four, and values, that a thread asks for before it uses the first: a few rows hide no waiting
REST = 2.0**11


@device
def remainders(v, a, i, k):
    """What the halves a leave of v[i] and v[k], as halves."""
    return ptx.f2h2(float32((v[i] - ptx.h2f_lo(a)) * float32(REST)), float32((v[k] - ptx.h2f_hi(a)) * float32(REST)))


@device
def put(v, o, xh, xl, at, split):
    """Eight neighbours as halves, and what these leave of them."""
    a, b = ptx.f2h2(v[o], v[o + 2]), ptx.f2h2(v[o + 1], v[o + 3])
    c, d = ptx.f2h2(v[o + 4], v[o + 6]), ptx.f2h2(v[o + 5], v[o + 7])
    ptx.st128(xh, at, a, b, c, d)
    if split:
        a, b = remainders(v, a, o, o + 2), remainders(v, b, o + 1, o + 3)
        c, d = remainders(v, c, o + 4, o + 6), remainders(v, d, o + 5, o + 7)
        ptx.st128(xl, at, a, b, c, d)


@kernel("FFifiiUFiUF", threads=THREADS, blocks=4)
def halves(x, norm, normed, eps, columns, stride, xh, factor, split, xl, rest):
    ptx.pdl_launch()
    ptx.pdl_wait()
    tid = int32(cuda.threadIdx.x)
    row = int64(cuda.blockIdx.x)
    lane = int32(tid & 31)
    v, w = cuda.local.array(AHEAD, float32), cuda.local.array(AHEAD, float32)
    shared_most = cuda.shared.array(WARPS, float32)
    shared_squares = cuda.shared.array(WARPS, float32)
    x_row = row * stride
    padded = int32((columns + 31) & ~31)
    vectors = int32((stride | columns) & 3) == 0  # rows and their ends are 16-byte aligned
    most = float32(0)
    squares = float32(0)
    i = int32(tid * 4)
    while i < columns:
        for b in range(DEEP):
            at = int32(min(int32(i + 4 * THREADS * b), int32((columns - 1) & -4)))  # all loads before the first use
            if vectors:
                v[4 * b], v[4 * b + 1], v[4 * b + 2], v[4 * b + 3] = ptx.ldf4(x, x_row + at)
            for k in range(4):
                place = int32(min(int32(at + k), int32(columns - 1)))
                if not vectors:
                    v[4 * b + k] = x[x_row + place]
                if normed:
                    w[4 * b + k] = norm[place]
        for b in range(DEEP):
            for k in range(4):
                if i + 4 * THREADS * b + k < columns:
                    squares += v[4 * b + k] * v[4 * b + k]
                    if normed:
                        v[4 * b + k] *= w[4 * b + k]
                    most = max(most, abs(v[4 * b + k]))
        i = int32(i + 4 * THREADS * DEEP)
    for step in range(5):
        most = max(most, ptx.shfl_xor(most, int32(16 >> step)))
        squares += ptx.shfl_xor(squares, int32(16 >> step))
    if lane == 0:
        shared_most[uint32(tid >> 5)] = most
        shared_squares[uint32(tid >> 5)] = squares
    cuda.syncthreads()
    most = float32(0)
    squares = float32(0)
    for k in range(WARPS):
        most = max(most, shared_most[uint32(k)])
        squares += shared_squares[uint32(k)]
    inverse = float32(1)
    if normed:
        inverse = ptx.rsqrt(squares / float32(columns) + eps)
        most = float32(most * inverse)
    exponent = int32(max(int32(ptx.f2bits(most) >> uint32(23)), int32(15)))  # of floats, biased by 127; 15: 2**-e stays finite
    if most == float32(0):
        exponent = int32(127 + 14)
    shrink = ptx.bits2f(uint32(int32(268 - exponent) << 23))
    if tid == 0:
        grow = ptx.bits2f(uint32(int32(exponent - 14) << 23))
        factor[row] = grow
        if split:
            rest[row] = float32(grow * float32(1 / REST))
    i = int32(tid * VALUES)
    while i < padded:
        for b in range(2):
            at = int32(i + b * THREADS * VALUES)
            if vectors:
                for h in range(2):
                    o, place = 8 * b + 4 * h, int32(min(int32(at + 4 * h), int32((columns - 1) & -4)))
                    v[o], v[o + 1], v[o + 2], v[o + 3] = ptx.ldf4(x, x_row + place)
            for k in range(VALUES):
                place = int32(min(int32(at + k), int32(columns - 1)))
                if not vectors:
                    v[8 * b + k] = x[x_row + place]
                if normed:
                    w[8 * b + k] = norm[place]
        for b in range(2):
            at = int32(i + b * THREADS * VALUES)
            for k in range(VALUES):
                o = 8 * b + k
                if normed:
                    v[o] = float32(float32(v[o] * inverse) * w[o])
                v[o] *= shrink
                if at + k >= columns:
                    v[o] = float32(0)
            if at < padded:
                put(v, 8 * b, xh, xl, row * (padded >> 1) + (at >> 1), split)
        i = int32(i + 2 * THREADS * VALUES)
