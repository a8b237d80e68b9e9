"""What is read off a row of logits: log-probabilities, the best token, the best tokens in order."""

from ..arrays import array_max
from ..export import export, helper
from ..intrinsics import load_f32, load_i64, store_32, store_f64
from ..logits import heapify, logarithm, pop, sum_exponentials, token_of


@helper
def row_logprobs(logits, count, ids, wanted, out):
    """See `logprobs`."""
    top = array_max(logits, count)
    total = logarithm(sum_exponentials(logits, count, top))
    for i in range(wanted):
        store_f64(out + 8 * i, (load_f32(logits + 4 * load_i64(ids + 8 * i)) - top) - total)
    return 0


@export
def logprobs(logits, count, ids, wanted, out):
    """out[i] (float64) = logits[ids[i]] - log sum e^logits; ids are int64 within range."""
    return row_logprobs(logits, count, ids, wanted, out)


@export
def logprobs_of_rows(step, thread, threads):
    """The same for many rows. step: 0 logits, 1 tokens of a row, 2 rows, 3 where the ids of each row begin (rows + 1 of
    them), 4 ids, 5 results. Each thread takes every threads-th row."""
    logits, count, rows, starts = load_i64(step), load_i64(step + 8), load_i64(step + 16), load_i64(step + 24)
    ids, out = load_i64(step + 32), load_i64(step + 40)
    for k in range((rows - thread + threads - 1) // threads):
        row = thread + k * threads
        at = load_i64(starts + 8 * row)
        wanted = load_i64(starts + 8 * row + 8) - at
        row_logprobs(logits + 4 * count * row, count, ids + 8 * at, wanted, out + 8 * at)
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
