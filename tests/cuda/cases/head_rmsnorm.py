import numpy
from run import Case

from reflex.ops import head_rmsnorm as op


def case(one, random, **given):
    (q, w), args = op.inputs(one, random)
    heads, dim = one["heads"], one["head_dim"]
    given_w, normed = (numpy.zeros(1, "f4"), dim) if w is None else (w, len(w))
    wanted = {0: op.reference(q, w, **args)}
    label = f"{one['rows']}x{heads}x{dim}"
    args = [q, given_w, int(w is not None), heads, dim, normed, one["eps"]]
    return Case(label, "head_rmsnorm", ((heads + 7) // 8, one["rows"]), args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in op.CASES:
        yield case({**one, "rows": min(one["rows"], 3)}, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["heads"] * one["head_dim"]
        yield made
