"""How sampling orders and weighs tokens: one 63-bit key per (logit, id), 1024 bins of falling logits, weights in fixed point.

Integer sums do not depend on their order, so blocks and threads may add in any: every draw gives the same token again.
"""

from numba.types import float32, int32, int64, uint32

from . import ptx
from .exponential import exponential
from .export import device

ID_BITS = 31
BINS = 1024
FINE, COARSE = 32, 2  # bins per unit of logit: in the first 16 units below the largest, and after them
HALF_BITS = 19  # a weight is a multiple of 2^-38, in two halves
LARGEST_SCALE = 1e38  # of a temperature near 0: infinity times 0 would be NaN


@device
def key_of(value, token):
    """Rises as the logit falls, then as the id rises. Equal logits differ in nothing else; -0 comes after 0."""
    bits = int32(ptx.f2bits(value))
    if bits < 0:
        bits = int32(bits ^ 0x7FFFFFFF)
    return int64((int64(0x7FFFFFFF - int64(bits)) << ID_BITS) | int64(token))


@device
def logit_of(key):
    bits = int32(0x7FFFFFFF - (key >> ID_BITS))
    if bits < 0:
        bits = int32(bits ^ 0x7FFFFFFF)
    return ptx.bits2f(uint32(bits))


@device
def token_of(key):
    return int32(key & 0x7FFFFFFF)


@device
def bin_of(below):
    """The bin of a logit that is `below` under the largest: never falls as `below` rises. Infinity and NaN are in the last."""
    place = int32(BINS - 1)
    if below < float32(16):
        place = int32(below * float32(FINE))
    elif below < float32(16 + (BINS // 2 - 1) // COARSE):
        place = int32(16 * FINE + int32((below - float32(16)) * float32(COARSE)))
    return int32(max(place, int32(0)))


@device
def weight_halves(below, scale):
    """e^(-below * scale), at most 1, as (high, low): (high * 2^19 + low) * 2^-38."""
    weight = exponential(float32(-float32(below * scale))) * float32(1 << HALF_BITS)
    high = int32(weight)
    low = ptx.f2i_rn(float32(float32(weight - float32(high)) * float32(1 << HALF_BITS)))
    return high, low


@device
def weight_of(below, scale):
    high, low = weight_halves(below, scale)
    return int64((int64(high) << HALF_BITS) + int64(low))


@device
def scale_of(temperature):
    """1 / temperature as float32, finite."""
    return min(float32(float32(1) / float32(max(float32(temperature), float32(1 / LARGEST_SCALE)))), float32(LARGEST_SCALE))
