import numpy
from run import Case

from reflex.ops import select as op


def case(one, random, **given):
    (x,), args = op.inputs(one, random)
    wanted = op.reference(x, **args)
    out = numpy.full(wanted.shape, numpy.nan, "float32")
    outputs = numpy.array(args["outputs"], "int32")
    grid = ((one["n"] + 1023) // 1024, len(outputs))
    label = f"{one['rows']}x{one['n']}"
    return Case(label, "select", grid, [x, outputs, out, one["n"]], {2: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for one in (*op.CASES, {"rows": 3, "n": 1028, "outputs": (0, 2)}, {"rows": 4, "n": 1031, "outputs": (1, 2, 3)}):
        yield case(one, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["n"] * len(one["outputs"])
        yield made
