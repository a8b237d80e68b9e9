"""scale: x *= factor (ops/scale.py). Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import kernel
from .quads import load4, store4


@kernel("Fif", threads=256)
def scale(x, count, factor):
    """x: float32[count]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left = int32(count - at)
    a, b, c, d = load4(x, at, left, True)
    store4(x, at, left, True, float32(a * factor), float32(b * factor), float32(c * factor), float32(d * factor))
