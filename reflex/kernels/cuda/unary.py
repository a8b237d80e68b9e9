"""unary_<act>: x = act(x) (ops/unary.py), one entry point per activation. Grid: ceil(count / 1024).

All have the same parameters: p, q, r, s are those of the activation, zeros where it has fewer.
"""

from numba import cuda
from numba.types import float32, int32

from ...ops.unary import ACTIVATIONS
from . import gated, ptx
from .exponential import exponential, logarithm
from .export import device, kernel
from .quads import load4, store4


@device
def softplus(x):
    """ln(1 + e^x); where that sum loses e^-|x|, the series of ln(1 + t)."""
    t = exponential(min(x, float32(-x)))
    low = logarithm(float32(float32(1) + t))
    if t < float32(0.015625):
        low = float32(t - t * t * ptx.fmaf(t, float32(-1 / 3), float32(0.5)))
    return float32(max(x, float32(0)) + low)


@device
def xielu(x, alpha_p, alpha_n, beta, eps):
    above = ptx.fmaf(float32(softplus(alpha_p) * x), x, float32(beta * x))
    steep = float32(beta + softplus(alpha_n))
    rest = float32(float32(exponential(min(x, eps)) - float32(1)) - x)
    below = ptx.fmaf(rest, steep, float32(beta * x))
    return above if x > float32(0) else below


@device
def relu2(x, p, q, r, s):
    y = max(x, float32(0))
    return float32(y * y)


def _plain(act):
    @device
    def unary(x, p, q, r, s):
        return act(x)

    return unary


FORMULAS = {name: _plain(act) for name, act in gated.FORMULAS.items()} | {"relu2": relu2, "xielu": xielu}
FORMULAS |= {"sigmoid": _plain(gated.sigmoid), "softplus": _plain(softplus)}


def _unary(act):
    def unary(x, count, p, q, r, s):
        """x: float32[count]."""
        ptx.pdl_launch()
        ptx.pdl_wait()
        at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
        left = int32(count - at)
        a, b, c, d = load4(x, at, left, True)
        store4(x, at, left, True, act(a, p, q, r, s), act(b, p, q, r, s), act(c, p, q, r, s), act(d, p, q, r, s))

    return unary


for _name in ACTIVATIONS:
    kernel("Fiffff", threads=256, name=f"unary_{_name}")(_unary(FORMULAS[_name]))
