"""e^x and the natural logarithm as kernels compute them, to about two units in the last place."""

from numba.types import float32, int32, uint32

from . import ptx
from .export import device

LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6  # the first has 16 bits: exact times an exponent


@device
def exponential(x):
    """e^x of x up to 88; what rounding x * log2(e) loses is put back."""
    if x < float32(-110):  # infinity would become NaN; 0 from here on
        x = float32(-110)
    scaled = float32(x * float32(1.4426950408889634))
    lost = ptx.fmaf(x, float32(1.4426950408889634), float32(-scaled))
    lost = ptx.fmaf(x, float32(1.9259629911e-8), lost)  # log2(e) less its float32
    power = ptx.ex2(scaled)
    return ptx.fmaf(power, float32(lost * float32(0.6931471805599453)), power)


@device
def logarithm(x):
    """ln x of a normal x > 0 or NaN: x = 2^k m with m in [sqrt 1/2, sqrt 2), ln m = 2 atanh((m - 1) / (m + 1)) by its series."""
    bits = ptx.f2bits(x)
    k = int32(int32(uint32(bits - 0x3F3504F3)) >> 23)
    m = ptx.bits2f(uint32(bits - uint32(k << 23)))
    t = float32((m - float32(1)) * ptx.rcp(float32(m + float32(1))))
    z = float32(t * t)
    series = ptx.fmaf(z, float32(1 / 9), float32(1 / 7))
    series = ptx.fmaf(z, series, float32(1 / 5))
    series = ptx.fmaf(z, series, float32(1 / 3))
    low = ptx.fmaf(float32(k), float32(LN2_LOW), float32(float32(t + t) * float32(z * series)))
    result = ptx.fmaf(float32(k), float32(LN2_HIGH), float32(float32(t + t) + low))
    if bits >= uint32(0x7F800000):  # infinite or NaN
        result = x
    return result
