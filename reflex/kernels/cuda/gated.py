"""gated_<act>: g = act(g) * u (ops/gated.py), one entry point per activation. Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from ...ops.gated import ACTIVATIONS
from . import ptx
from .export import device, kernel
from .quads import load4, store4

MINUS_LOG2E = -1.4426950408889634


@device
def silu(x):
    """x / (1 + e^-x)."""
    return float32(x * ptx.rcp(float32(float32(1) + ptx.ex2(float32(x * float32(MINUS_LOG2E))))))


@device
def gelu(x):
    """x/2 (1 + tanh z) = x / (1 + e^-2z) with z = sqrt(2/pi) (x + 0.044715 x^3)."""
    z = float32(float32(1.5957691216057308) * ptx.fmaf(float32(float32(0.044715) * x), float32(x * x), x))
    return float32(x * ptx.rcp(float32(float32(1) + ptx.ex2(float32(z * float32(MINUS_LOG2E))))))


FORMULAS = {"silu": silu, "gelu": gelu}  # by the names of ops.gated


def _gated(act):
    def gated(g, u, count):
        ptx.pdl_launch()
        ptx.pdl_wait()
        at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
        left = int32(count - at)
        a, b, c, d = load4(g, at, left, True)
        e, f, h, i = load4(u, at, left, True)
        store4(g, at, left, True, float32(act(a) * e), float32(act(b) * f), float32(act(c) * h), float32(act(d) * i))

    return gated


for _name in ACTIVATIONS:
    kernel("FFi", threads=256, name=f"gated_{_name}")(_gated(FORMULAS[_name]))
