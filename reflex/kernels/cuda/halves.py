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
REST = 2.0**11


@device
def remainders(v, a, i, k):
    """What the halves a leave of v[i] and v[k], as halves."""
    return ptx.f2h2(float32((v[i] - ptx.h2f_lo(a)) * float32(REST)), float32((v[k] - ptx.h2f_hi(a)) * float32(REST)))


@kernel("FFifiiUFiUF", threads=THREADS)
def halves(x, norm, normed, eps, columns, stride, xh, factor, split, xl, rest):
    ptx.pdl_launch()
    ptx.pdl_wait()
    tid = int32(cuda.threadIdx.x)
    row = int64(cuda.blockIdx.x)
    lane = int32(tid & 31)
    v = cuda.local.array(VALUES, float32)
    shared_most = cuda.shared.array(WARPS, float32)
    shared_squares = cuda.shared.array(WARPS, float32)
    x_row = row * stride
    padded = int32((columns + 31) & ~31)
    vectors = int32((stride | columns) & 3) == 0  # rows and their ends are 16-byte aligned
    most = float32(0)
    squares = float32(0)
    i = int32(tid * 4)
    while i < columns:
        if vectors:
            v[0], v[1], v[2], v[3] = ptx.ldf4(x, x_row + i)
        else:
            for k in range(4):
                v[k] = float32(0)
                if i + k < columns:
                    v[k] = x[x_row + i + k]
        for k in range(4):
            squares += v[k] * v[k]
        if normed:
            for k in range(4):
                if i + k < columns:
                    v[k] *= norm[int32(i + k)]
        for k in range(4):
            most = max(most, abs(v[k]))
        i = int32(i + 4 * THREADS)
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
        if vectors and i + VALUES <= columns:
            v[0], v[1], v[2], v[3] = ptx.ldf4(x, x_row + i)
            v[4], v[5], v[6], v[7] = ptx.ldf4(x, x_row + i + 4)
        else:
            for k in range(VALUES):
                v[k] = float32(0)
                if i + k < columns:
                    v[k] = x[x_row + i + k]
        if normed:
            for k in range(VALUES):
                if i + k < columns:
                    v[k] = float32(float32(v[k] * inverse) * norm[int32(i + k)])
        for k in range(VALUES):
            v[k] *= shrink
        a = ptx.f2h2(v[0], v[2])
        b = ptx.f2h2(v[1], v[3])
        c = ptx.f2h2(v[4], v[6])
        d = ptx.f2h2(v[5], v[7])
        ptx.st128(xh, row * (padded >> 1) + (i >> 1), a, b, c, d)
        if split:
            a, b = remainders(v, a, 0, 2), remainders(v, b, 1, 3)
            c, d = remainders(v, c, 4, 6), remainders(v, d, 5, 7)
            ptx.st128(xl, row * (padded >> 1) + (i >> 1), a, b, c, d)
        i = int32(i + THREADS * VALUES)
