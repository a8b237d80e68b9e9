import numpy
from run import Case

from reflex.ops import gated as op


def case(label, act, g, u, **given):
    wanted = op.reference(g, u, act=act)
    return Case(label, f"gated_{act}", (g.size + 1023) // 1024, [g, u, g.size], {0: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for act in op.UNITS:
        for count in (1, 31, 256, 1029):
            g, u = (x[0] for x in op.inputs({"rows": 1, "n": count, "act": act}, random)[0])
            yield case(str(count), act, g, u)
        g = numpy.array([0, -0.0, 1e-30, -1e-30, 80, -80, 100, -100, 1e4, -1e4], "float32")
        yield case("extremes", act, g, numpy.linspace(1, 2, 10, dtype="float32"))


def bench():
    random = numpy.random.default_rng(1)
    for act in op.UNITS:
        for count in (8192, 512 * 8192):
            g, u = random.standard_normal((2, count), "float32")
            made = case(str(count), act, g, u, emulate=False)
            made.bytes = 12 * count
            yield made
