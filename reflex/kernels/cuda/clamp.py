"""clamp: x held in [-limit, limit] (ops/clamp.py). Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import device, kernel
from .quads import load4, store4


@device
def held(x, limit):
    return min(max(x, float32(-limit)), limit)


@kernel("Fif", threads=256)
def clamp(x, count, limit):
    """x: float32[count]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left = int32(count - at)
    a, b, c, d = load4(x, at, left, True)
    store4(x, at, left, True, held(a, limit), held(b, limit), held(c, limit), held(d, limit))
