"""expert_scale: x_j *= w_j, the parts of a row that belong to its experts times the weights of its routes (ops/expert_scale.py).

x: float32[rows * used, n]; routes: float32[rows, 2 used]. Grid: (ceil(n / 1024), rows * used).
"""

from numba import cuda
from numba.types import float32, int32, int64

from . import ptx
from .export import kernel
from .quads import load4, store4

THREADS = 256


@kernel("FFii", threads=THREADS)
def expert_scale(x, routes, n, used):
    ptx.pdl_launch()
    ptx.pdl_wait()
    item, at = int32(cuda.blockIdx.y), int32((cuda.blockIdx.x * THREADS + cuda.threadIdx.x) << 2)
    left, aligned = int32(n - at), n & 3 == 0
    row = ptx.quotient(item, used)
    weight = ptx.ldf(routes, int32(row * used + item))
    place = int64(item) * n + at
    a, b, c, d = load4(x, place, left, aligned)
    store4(x, place, left, aligned, float32(weight * a), float32(weight * b), float32(weight * c), float32(weight * d))
