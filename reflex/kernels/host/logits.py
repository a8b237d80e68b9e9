"""What is read off a row of logits: log-probabilities, the best token, the best tokens in order."""

from ..arrays import array_max
from ..export import export, helper
from ..intrinsics import load_f32, load_f64, load_i64, store_32, store_64, store_f64
from ..logits import heapify, pop, sum_exponentials, token_of

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # fdlibm e_log.c


@helper
def row_logprobs(logits, count, ids, wanted, out, scratch):
    """See `logprobs`.

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
def logprobs(logits, count, ids, wanted, out, scratch):
    """out[i] (float64) = logits[ids[i]] - log sum e^logits; ids are int64 within range; scratch holds 8 bytes."""
    return row_logprobs(logits, count, ids, wanted, out, scratch)


@export
def logprobs_of_rows(step, thread, threads):
    """The same for many rows. step: 0 logits, 1 tokens of a row, 2 rows, 3 where the ids of each row begin (rows + 1 of
    them), 4 ids, 5 results, 6 scratch of 8 bytes per row. Each thread takes every threads-th row."""
    logits, count, rows, starts = load_i64(step), load_i64(step + 8), load_i64(step + 16), load_i64(step + 24)
    ids, out, scratch = load_i64(step + 32), load_i64(step + 40), load_i64(step + 48)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        at = load_i64(starts + 8 * row)
        wanted = load_i64(starts + 8 * row + 8) - at
        row_logprobs(logits + 4 * count * row, count, ids + 8 * at, wanted, out + 8 * at, scratch + 8 * row)
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
