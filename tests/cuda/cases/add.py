import numpy
from run import Case

from reflex.ops import add as op

COUNTS = (1, 3, 4, 1023, 1025)


def case(shape, scale, random, **given):
    (x, y), args = op.inputs({"rows": 1, "n": shape, "scale": scale}, random)
    wanted = op.reference(x, y, **args)
    return Case(f"{shape}", "add", (shape + 1023) // 1024, [x, y, shape, scale], {0: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for count in COUNTS:
        yield case(count, 0.22, random)


def bench():
    random = numpy.random.default_rng(1)
    for count in (4096, 512 * 4096):
        made = case(count, 1.0, random, emulate=False)
        made.bytes = 12 * count
        yield made
