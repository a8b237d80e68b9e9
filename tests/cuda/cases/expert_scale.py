import numpy
from run import Case

from reflex.ops import expert_scale as op


def case(words, random, emulate=True):
    (x, routes), settings = op.inputs(words, random)
    rows, n, used = len(x), words["n"], words["used"]
    wanted = {0: op.reference(x, routes, **settings)}
    grid = -(-n // 1024), rows * used
    return Case(f"{rows}x{used}x{n}", "expert_scale", grid, [x, routes, n, used], wanted, tolerance=1e-6, emulate=emulate)


def cases():
    random = numpy.random.default_rng(37)
    for words in op.CASES:
        yield case({**words, "rows": min(words["rows"], 3)}, random)


def bench():
    random = numpy.random.default_rng(38)
    for words in op.BENCH:
        made = case(words, random, emulate=False)
        made.bytes = 2 * made.args[0].nbytes
        yield made
