"""gated_<act>: g = unit(g, u) (ops/gated.py), one entry point per activation. Grid: ceil(count / 1024)."""

from numba import cuda
from numba.types import float32, int32

from ...ops.gated import UNITS
from . import ptx
from .export import device, kernel
from .quads import load4, store4

MINUS_LOG2E = -1.4426950408889634
LIMIT = 7.0  # of swiglu_oai


@device
def silu(x):
    """x / (1 + e^-x)."""
    return float32(x * ptx.rcp(float32(float32(1) + ptx.ex2(float32(x * float32(MINUS_LOG2E))))))


@device
def gelu(x):
    """x/2 (1 + tanh z) = x / (1 + e^-2z) with z = sqrt(2/pi) (x + 0.044715 x^3)."""
    z = float32(float32(1.5957691216057308) * ptx.fmaf(float32(float32(0.044715) * x), float32(x * x), x))
    return float32(x * ptx.rcp(float32(float32(1) + ptx.ex2(float32(z * float32(MINUS_LOG2E))))))


@device
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return ptx.rcp(float32(float32(1) + ptx.ex2(float32(x * float32(MINUS_LOG2E)))))


FORMULAS = {"silu": silu, "gelu": gelu}  # of units act(g) * u, which products of a gate and an up do themselves


@device
def swiglu_oai(g, u):
    """a / (1 + e^-1.702a) (b + 1), a and b being g and u held within their limits."""
    a, b = min(g, float32(LIMIT)), min(max(u, float32(-LIMIT)), float32(LIMIT))
    gate = float32(a * ptx.rcp(float32(float32(1) + ptx.ex2(float32(a * float32(1.702 * MINUS_LOG2E))))))
    return float32(gate * float32(b + float32(1)))


@device
def itself(g):
    return g


def _product(act):
    @device
    def unit(g, u):
        return float32(act(g) * u)

    return unit


WHOLE = {name: _product(act) for name, act in {**FORMULAS, "sigmoid": sigmoid, "product": itself}.items()}
WHOLE["swiglu_oai"] = swiglu_oai


def _gated(unit):
    def gated(g, u, count):
        ptx.pdl_launch()
        ptx.pdl_wait()
        at = int32((cuda.blockIdx.x * 256 + cuda.threadIdx.x) << 2)
        left = int32(count - at)
        a, b, c, d = load4(g, at, left, True)
        e, f, h, i = load4(u, at, left, True)
        store4(g, at, left, True, unit(a, e), unit(b, f), unit(c, h), unit(d, i))

    return gated


for _name in UNITS:
    kernel("FFi", threads=256, name=f"gated_{_name}")(_gated(WHOLE[_name]))
