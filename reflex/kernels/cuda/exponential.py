"""e^x as kernels compute it."""

from numba.types import float32

from . import ptx
from .export import device


@device
def exponential(x):
    """e^x of x up to 88, to about two units in the last place: what rounding x * log2(e) loses is put back."""
    if x < float32(-110):  # infinity would become NaN; 0 from here on
        x = float32(-110)
    scaled = float32(x * float32(1.4426950408889634))
    lost = ptx.fmaf(x, float32(1.4426950408889634), float32(-scaled))
    lost = ptx.fmaf(x, float32(1.9259629911e-8), lost)  # log2(e) less its float32
    power = ptx.ex2(scaled)
    return ptx.fmaf(power, float32(lost * float32(0.6931471805599453)), power)
