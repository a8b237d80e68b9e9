"""add: x += scale * y (ops/add.py). Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel
from .quads import load4, store4


@kernel("FFif", threads=256)
def add(x, y, count, scale):
    """x, y: float32[count]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left = int32(count - at)
    a, b, c, d = load4(x, at, left, True)
    e, f, g, h = load4(y, at, left, True)
    store4(x, at, left, True, float32(a + scale * e), float32(b + scale * f), float32(c + scale * g), float32(d + scale * h))
