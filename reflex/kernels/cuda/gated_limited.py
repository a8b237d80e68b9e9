"""gated_limited: g = min(silu(g), c) min(max(u, -c), c), the gated unit with a limit (ops/gated.py). Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .clamp import held
from .export import device, kernel
from .gated import silu
from .quads import load4, store4


@device
def limited(g, u, limit):
    return float32(min(silu(g), limit) * held(u, limit))


@kernel("FFif", threads=256)
def gated_limited(g, u, count, limit):
    """g, u: float32[count]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left = int32(count - at)
    a, b, c, d = load4(g, at, left, True)
    e, f, h, i = load4(u, at, left, True)
    store4(g, at, left, True, limited(a, e, limit), limited(b, f, limit), limited(c, h, limit), limited(d, i, limit))
