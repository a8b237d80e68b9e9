"""halves: rows of activations as scaled float16, the input of matrix products of more than one row.

A row x (times the norm's weights, when `normed`) becomes xh = float16(x * 2**-e), with e such that the largest magnitude
lies in [2**14, 2**15) (e = 0 for a zero row), and factor = 2**e, divided by the root mean square of x when `normed`: a
product of xh needs only a multiplication by `factor`. Within each four values the order is 0, 2, 1, 3. Rows are padded to a
multiple of 32 columns with zeros.

Grid: (rows). x has `stride` floats per row; xh padded / 2 words.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import kernel

THREADS = 256
WARPS = THREADS // 32
VALUES = 8  # a thread takes that many at a time


@kernel("FFifiiUF", threads=THREADS)
def halves(x, norm, normed, eps, columns, stride, xh, factor):
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
    exponent = int32(max(int32(ptx.f2bits(most) >> uint32(23)), int32(15)))  # of floats, biased by 127; 15: 2**-e stays finite
    if most == float32(0):
        exponent = int32(127 + 14)
    shrink = ptx.bits2f(uint32(int32(268 - exponent) << 23))
    if tid == 0:
        grow = ptx.bits2f(uint32(int32(exponent - 14) << 23))
        if normed:
            grow *= ptx.rsqrt(squares / float32(columns) + eps)
        factor[row] = grow
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
                    v[k] *= norm[int32(i + k)]
        for k in range(VALUES):
            v[k] *= shrink
        a = ptx.f2h2(v[0], v[2])
        b = ptx.f2h2(v[1], v[3])
        c = ptx.f2h2(v[4], v[6])
        d = ptx.f2h2(v[5], v[7])
        ptx.st128(xh, row * (padded >> 1) + (i >> 1), a, b, c, d)
        i = int32(i + THREADS * VALUES)
