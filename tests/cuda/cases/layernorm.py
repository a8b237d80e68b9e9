import numpy
from run import Case

from reflex.ops import layernorm as op


def case(one, random, **given):
    (x, w, b), args = op.inputs(one, random)
    out = numpy.full(x.shape, numpy.nan, "float32")
    wanted = {3: op.reference(x, w, b, **args)}
    nothing, flags = numpy.zeros(0, "float32"), (w is not None) + 2 * (b is not None)
    args = [x, nothing if w is None else w, nothing if b is None else b, out, one["n"], flags, one["eps"]]
    label = f"{one['rows']}x{one['n']} {one['weights']}"
    return Case(label, "layernorm", one["rows"], args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in op.CASES:
        yield case({**one, "rows": min(one["rows"], 3)}, random)
    for n in (2047, 2048, 2052, 4099):
        yield case({"rows": 1, "n": n, "eps": 1e-6, "weights": "wb"}, random)
    tiny = case({"rows": 2, "n": 64, "eps": 1e-6, "weights": "w"}, random)  # eps decides; and a row without spread becomes zero
    rows = [1e-5 * random.standard_normal(64, "float32"), numpy.full(64, 3, "float32")]
    tiny.label, tiny.args[0] = "tiny", numpy.stack(rows)
    tiny.wanted = {3: op.reference(tiny.args[0], tiny.args[1], None, eps=1e-6)}
    yield tiny
    far = case({"rows": 1, "n": 576, "eps": 1e-6, "weights": ""}, random)  # a mean that is large beside the spread
    far.label, far.args[0] = "far", far.args[0] + numpy.float32(1000)
    far.wanted = {3: op.reference(far.args[0].astype(float), None, None, eps=1e-6).astype("float32")}
    far.tolerance = 1e-4
    yield far


def bench():
    random = numpy.random.default_rng(1)
    for one in op.BENCH:
        made = case(one, random, emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
