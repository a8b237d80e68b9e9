import numpy
from run import Case

from reflex.ops import clamp as op


def case(one, random, **given):
    (x,), args = op.inputs(one, random)
    wanted = op.reference(x, **args)
    return Case(f"{x.size}", "clamp", (x.size + 1023) // 1024, [x, x.size, one["limit"]], {0: wanted}, tolerance=0, **given)


def cases():
    random = numpy.random.default_rng(1)
    for n in (1, 4, 31, 1026):
        yield case({"rows": 1, "n": n, "limit": 0.7}, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
