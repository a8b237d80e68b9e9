import numpy
from run import Case

from reflex.ops import scale as op


def case(count, factor, random, **given):
    (x,), args = op.inputs({"rows": 1, "n": count, "factor": factor}, random)
    wanted = op.reference(x, **args)
    return Case(f"{count}", "scale", (count + 1023) // 1024, [x, count, factor], {0: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for count in (1, 4, 31, 1026):
        yield case(count, 0.0625, random)


def bench():
    made = case(151936, 0.0625, numpy.random.default_rng(1), emulate=False)
    made.bytes = 8 * 151936
    yield made
