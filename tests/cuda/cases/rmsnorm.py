import numpy
from run import Case

from reflex.ops import rmsnorm as op


def plain(one, random, **given):
    (x, w), args = op.inputs(one, random)
    out = numpy.full(x.shape, numpy.nan, "float32")
    wanted = {2: op.reference(x, w, **args)}
    label = f"{one['rows']}x{one['n']}"
    return Case(label, "rmsnorm", one["rows"], [x, w, out, one["n"], one["eps"]], wanted, tolerance=op.TOLERANCE, **given)


def added(one, random, scale, **given):
    (y, w), args = op.inputs(one, random)
    x = random.standard_normal(y.shape, "float32")
    wanted = {2: x + numpy.float32(scale) * op.reference(y, w, **args)}
    label = f"{one['rows']}x{one['n']}"
    args = [y, w, x, one["n"], one["eps"], scale]
    return Case(label, "rmsnorm_add", one["rows"], args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in (*op.CASES, *({"rows": 1, "n": n, "eps": 1e-6} for n in (2047, 2048, 2052, 4099))):
        yield plain(one, random)
    for rows, n in ((1, 33), (2, 576), (1, 2052)):
        yield added({"rows": rows, "n": n, "eps": 1e-6}, random, 0.7)
    tiny = plain({"rows": 2, "n": 64, "eps": 1e-6}, random)  # eps decides; and a row of zeros stays zero
    tiny.label, tiny.args[0] = "tiny", numpy.stack([numpy.full(64, 1e-5, "float32"), numpy.zeros(64, "float32")])
    tiny.wanted = {2: op.reference(tiny.args[0], tiny.args[1], eps=1e-6)}
    yield tiny


def bench():
    random = numpy.random.default_rng(1)
    for rows in (1, 512):
        for n in (1024, 4096):
            made = plain({"rows": rows, "n": n, "eps": 1e-6}, random, emulate=False)
            made.bytes = 8 * rows * n
            yield made
