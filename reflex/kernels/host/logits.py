"""What is read off a row of logits: log-probabilities, the best token, the best tokens in order."""

from ..arrays import array_max
from ..export import export
from ..intrinsics import load_f32, load_f64, load_i64, store_32, store_64, store_f64
from ..logits import heapify, pop, sum_exponentials, token_of

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # fdlibm e_log.c


@export
def logprobs(logits, count, ids, wanted, out, scratch):
    """out[i] (float64) = logits[ids[i]] - log sum e^logits; ids are int64 within range; scratch holds 8 bytes.

    The logarithm: x = 2^k m with m in [sqrt 1/2, sqrt 2), log m = 2 atanh((m - 1)/(m + 1)) by its series.
    """
    top = array_max(logits, count)
    store_f64(scratch, sum_exponentials(logits, count, top))
    bits = load_i64(scratch)
    exponent = (bits >> 52) - 1023
    store_64(scratch, bits & 0xFFFFFFFFFFFFF | 0x3FF0000000000000)
    m = load_f64(scratch)
    if m > 1.4142135623730951:
        m *= 0.5
        exponent += 1
    t = (m - 1.0) / (m + 1.0)
    z = t * t
    series = 0.0
    for k in range(12, -1, -1):
        series = series * z + 1.0 / (2 * k + 1)
    total = exponent * LN2_HIGH + (exponent * LN2_LOW + 2.0 * t * series)
    for i in range(wanted):
        store_f64(out + 8 * i, (load_f32(logits + 4 * load_i64(ids + 8 * i)) - top) - total)
    return 0


@export
def argmax(logits, count):
    """Index of the largest logit, the lowest on ties."""
    top = array_max(logits, count)
    for i in range(count):
        if load_f32(logits + 4 * i) == top:
            return i
    return -1


@export
def rank(logits, count, wanted, out, heap):
    """The `wanted` most likely token ids (uint32) in order, lower id first on ties; heap holds 8 x count bytes."""
    heapify(logits, count, heap)
    for k in range(min(wanted, count)):
        store_32(out + 4 * k, token_of(pop(heap, count - k)))
    return min(wanted, count)
