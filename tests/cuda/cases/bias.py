import numpy
from run import Case

from reflex.ops import bias as op


def case(one, random, **given):
    (x, b), _ = op.inputs(one, random)
    rows, n = x.shape
    wanted = {0: op.reference(x, b)}
    return Case(f"{rows}x{n}", "bias", ((n + 1023) // 1024, rows), [x, b, n], wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for rows, n in ((1, 1), (1, 31), (2, 33), (3, 256), (2, 1024), (2, 1029)):
        yield case({"rows": rows, "n": n}, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
