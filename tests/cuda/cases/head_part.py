import numpy
from run import Case

from reflex.ops import head_part as op


def case(one, random, **options):
    (x,), words = op.inputs(one, random)
    wanted = op.reference(x, **words)
    heads, dim = one["heads"], one["head_dim"]
    args = [x, numpy.full_like(wanted, numpy.nan), heads, dim, one["stride"], one["first"]]
    grid = (heads * dim + 255) // 256, one["rows"]
    return Case(f"{one['rows']}x{heads}x{dim}", "head_part", grid, args, {1: wanted}, tolerance=0, **options)


def cases():
    random = numpy.random.default_rng(1)
    for one in op.CASES:
        yield case({**one, "rows": min(one["rows"], 3)}, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["heads"] * one["head_dim"]
        yield made
