import numpy
from run import Case

from reflex.ops import sparsify as op


def case(one, random, **options):
    (x,), words = op.inputs(one, random)
    args = [x, one["n"], words["deviations"]]
    wanted = {0: op.reference(x, **words)}
    return Case(f"{one['rows']}x{one['n']}", "sparsify", one["rows"], args, wanted, tolerance=op.TOLERANCE, **options)


def cases():
    random = numpy.random.default_rng(1)
    for rows, n in ((1, 2), (2, 33), (1, 1030)):
        yield case({"rows": rows, "n": n, "deviations": 1.6448534}, random)
    one = case({"rows": 1, "n": 40, "deviations": 1.0}, random)
    one.args[0][:] = one.wanted[0][:] = 0  # a row of nothing
    yield one


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 2 * made.args[0].nbytes
        yield made
