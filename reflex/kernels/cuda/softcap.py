"""softcap: x = cap * tanh(x / cap) (ops/softcap.py). Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .exponential import exponential
from .export import device, kernel
from .quads import load4, store4


@device
def capped(x, cap, inverse):
    """tanh z = 1 - 2 / (1 + e^2z); where that cancels, its series (the next term is below 2^-27 of z)."""
    z = float32(x * inverse)
    if z > float32(20):
        z = float32(20)
    s = float32(z * z)
    t = float32(1) - float32(2) * ptx.rcp(float32(float32(1) + exponential(float32(z + z))))
    if s < float32(0.0625):
        p = ptx.fmaf(s, float32(62 / 2835), float32(-17 / 315))
        p = ptx.fmaf(s, p, float32(2 / 15))
        p = ptx.fmaf(s, p, float32(-1 / 3))
        t = ptx.fmaf(float32(z * s), p, z)
    return float32(cap * t)


@kernel("Fif", threads=256)
def softcap(x, count, cap):
    """x: float32[count]."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
    left = int32(count - at)
    a, b, c, d = load4(x, at, left, True)
    inverse = ptx.rcp(cap)
    a, b = capped(a, cap, inverse), capped(b, cap, inverse)
    c, d = capped(c, cap, inverse), capped(d, cap, inverse)
    store4(x, at, left, True, a, b, c, d)
