import numpy
from run import Case

from reflex.ops import head_layernorm as op


def case(one, random, **given):
    (q, w), args = op.inputs(one, random)
    heads, dim = one["heads"], one["head_dim"]
    wanted = {0: op.reference(q, w, **args)}
    label = f"{one['rows']}x{heads}x{dim}"
    args = [q, w, heads, dim, one["eps"]]
    return Case(label, "head_layernorm", ((heads + 7) // 8, one["rows"]), args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in op.CASES:
        yield case({**one, "rows": min(one["rows"], 3)}, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["heads"] * one["head_dim"]
        yield made
