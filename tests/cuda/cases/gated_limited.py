import numpy
from run import Case

from reflex.ops import gated as op


def case(label, g, u, limit, **given):
    wanted = op.reference(g, u, act="silu", limit=limit)
    args = [g, u, g.size, limit]
    return Case(label, "gated_limited", -(-g.size // 1024), args, {0: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for count, limit in ((1, 0.7), (31, 0.3), (1029, 7.0)):
        g, u = (x[0] for x in op.inputs({"rows": 1, "n": count, "act": "silu"}, random)[0])
        yield case(str(count), g, u, limit)
    g = numpy.array([0, -0.0, 1e-30, 80, -80, 1e4, -1e4, 0.5], "float32")
    yield case("extremes", g, numpy.array([-2, 2, 1, -1e6, 1e6, 0.1, 0.1, -0.5], "float32"), 0.9)


def bench():
    random = numpy.random.default_rng(1)
    for count in (8192, 512 * 8192):
        made = case(str(count), *random.standard_normal((2, count), "float32"), 7.0, emulate=False)
        made.bytes = 12 * count
        yield made
