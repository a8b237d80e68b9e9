import numpy
from run import Case

from reflex.ops import temper as op


def case(one, random, **given):
    (q,), words = op.inputs(one, random)
    rows, n = q.shape
    wanted = {0: op.reference(q, **words)}
    args = [q, numpy.array(words["positions"], "int32"), n, words["length"], words.get("ahead", 0), words["scale"]]
    return Case(f"{rows}x{n}", "temper", ((n + 1023) // 1024, rows), args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in (*op.CASES, {"rows": 2, "n": 1029, "scale": 0.4, "length": 1}, {"rows": 3, "n": 8, "scale": 0.1, "length": 50}):
        yield case({**one, "rows": min(one["rows"], 7)}, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
