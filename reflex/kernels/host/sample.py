"""Draw one token id from a row of logits; `reflex.sample.choose` is the definition this follows.

Candidates leave a heap in order of falling logit (lower id first among equals), and only as many as the filters and
the draw look at, so that a vocabulary of a quarter of a million is never sorted.
"""

from ..arrays import array_max
from ..export import export, helper
from ..intrinsics import load_f32, load_f64, load_i64, store_64
from ..logits import exponential, heapify, pop, sum_exponentials, token_of

TEMPERATURE, TOP_P, MIN_P, RANDOM = 0, 8, 16, 24


@helper
def keep(logits, count, top, top_k, top_p, min_p, heap, kept):
    """Fill `kept` (int64 ids in order) with what top-k, top-p and min-p leave; returns how many."""
    limit = count if top_k <= 0 or top_k > count else top_k
    n = 0
    mass = 0.0
    if limit < count:
        while n < limit:
            store_64(kept + 8 * n, token_of(pop(heap, count - n)))
            mass += exponential(load_f32(logits + 4 * load_i64(kept + 8 * n)) - top)
            n += 1
    else:
        mass = sum_exponentials(logits, count, top)
    goal = top_p * mass if top_p < 1.0 else mass * 2.0
    mass = 0.0
    k = 0
    while k < limit and (k == 0 or mass < goal):
        if limit == count:
            store_64(kept + 8 * k, token_of(pop(heap, count - k)))
        e = exponential(load_f32(logits + 4 * load_i64(kept + 8 * k)) - top)
        if k > 0 and e < min_p:
            break
        mass += e
        k += 1
    return k


@export
def sample(logits, count, top_k, parameters, heap):
    """parameters: float64 temperature (> 0), top_p, min_p, random in [0, 1). heap: 16 x count bytes."""
    top = array_max(logits, count)
    kept = heap + 8 * count
    scale = 1.0 / load_f64(parameters + TEMPERATURE)
    random = load_f64(parameters + RANDOM)
    heapify(logits, count, heap)
    if top_k <= 0 and load_f64(parameters + TOP_P) >= 1.0 and load_f64(parameters + MIN_P) <= 0.0:
        total = 0.0
        for i in range(count):
            total += exponential((load_f32(logits + 4 * i) - top) * scale)
        mass = 0.0
        chosen = token_of(load_i64(heap))
        for k in range(count):
            token = token_of(pop(heap, count - k))
            e = exponential((load_f32(logits + 4 * token) - top) * scale)
            if mass + e == mass or mass > random * total:
                break
            chosen = token
            mass += e
        return chosen
    n = keep(logits, count, top, top_k, load_f64(parameters + TOP_P), load_f64(parameters + MIN_P), heap, kept)
    total = 0.0
    for k in range(n):
        total += exponential((load_f32(logits + 4 * load_i64(kept + 8 * k)) - top) * scale)
    mass = 0.0
    chosen = load_i64(kept)
    for k in range(n):
        e = exponential((load_f32(logits + 4 * load_i64(kept + 8 * k)) - top) * scale)
        if mass + e == mass or mass > random * total:
            break
        chosen = load_i64(kept + 8 * k)
        mass += e
    return chosen
