"""bias: x += b in every row (ops/bias.py). Grid: (ceil(columns / 1024), rows)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel
from .quads import load4, store4, weights4


@kernel("FFi", threads=256)
def bias(x, b, columns):
    """x: float32[rows, columns], b: float32[columns]."""
    ptx.pdl_launch()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left, aligned = int32(columns - at), (columns & 3) == 0
    p, q, r, s = weights4(b, at, left)
    ptx.pdl_wait()
    place = int32(cuda.blockIdx.y * columns + at)
    e, f, g, h = load4(x, place, left, aligned)
    store4(x, place, left, aligned, float32(e + p), float32(f + q), float32(g + r), float32(h + s))
