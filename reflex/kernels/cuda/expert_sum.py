"""expert_sum: y = sum_j w_j x_j (ops/expert_sum.py), the results of a row's experts times the weights of its routes.

x: float32[rows, used, n]; routes: float32[rows, 2 used]. mode 0: out = y; 1: out += scale * y; 2 more: all
weights are 1. Grid: (ceil(n / 1024), rows).
"""

from numba import cuda
from numba.types import float32, int32, int64

from . import ptx
from .export import kernel
from .quads import load4, store4

THREADS = 256


@kernel("FFFiiif", threads=THREADS)
def expert_sum(x, routes, out, n, used, mode, scale):
    ptx.pdl_launch()
    ptx.pdl_wait()
    row, at = int32(cuda.blockIdx.y), int32((cuda.blockIdx.x * THREADS + cuda.threadIdx.x) << 2)
    left, aligned = int32(n - at), n & 3 == 0
    a, b, c, d = float32(0), float32(0), float32(0), float32(0)
    for j in range(used):
        weight = ptx.ldf(routes, int32(2 * row * used + j))
        if mode & 2:
            weight = float32(1)
        e, f, g, h = load4(x, int64(row * used + j) * n + at, left, aligned)
        a, b = ptx.fmaf(weight, e, a), ptx.fmaf(weight, f, b)
        c, d = ptx.fmaf(weight, g, c), ptx.fmaf(weight, h, d)
    place = int64(row) * n + at
    if mode & 1:
        e, f, g, h = load4(out, place, left, aligned)
        a, b, c, d = ptx.fmaf(scale, a, e), ptx.fmaf(scale, b, f), ptx.fmaf(scale, c, g), ptx.fmaf(scale, d, h)
    store4(out, place, left, aligned, a, b, c, d)
