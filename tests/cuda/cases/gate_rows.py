import numpy
from run import Case

from reflex.ops import gate_rows as op


def case(one, random, **given):
    (y, h, w), _ = op.inputs(one, random)
    wanted = {0: op.reference(y, h, w)}
    args = [y, h, w, one["n"], one["in"]]
    return Case(f"{one['rows']}x{one['n']} of {one['in']}", "gate_rows", one["rows"], args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in (*op.CASES, {"rows": 2, "n": 2052, "in": 2051}):
        yield case({**one, "rows": min(one["rows"], 3)}, random)
    for factor in (100, -5):  # gates that are open or shut
        made = case({"rows": 2, "n": 33, "in": 64}, random)
        made.label = f"times {factor}"
        made.args[1][:] = factor * numpy.abs(made.args[1])
        made.args[2][:] = numpy.abs(made.args[2])
        made.wanted = {0: op.reference(*made.args[:3])}
        yield made


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 4 * one["rows"] * (2 * one["n"] + one["in"])
        yield made
