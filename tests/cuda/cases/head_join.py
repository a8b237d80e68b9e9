import numpy
from run import Case


def case(rows, heads, made, dim, used, random):
    t = random.standard_normal((rows, heads, made), "f4")
    x = random.standard_normal((rows, heads, dim), "f4")
    wanted = numpy.concatenate([t, x[..., used:]], -1)
    args = [t, x, numpy.full_like(wanted, numpy.nan), heads, made, dim, used]
    return Case(f"{rows}x{heads}x{made}", "head_join", (heads, rows), args, {2: wanted}, tolerance=0)


def cases():
    random = numpy.random.default_rng(1)
    for sizes in ((1, 1, 1, 3, 2), (3, 2, 31, 24, 16), (2, 5, 64, 40, 40), (1, 2, 150, 24, 16)):
        yield case(*sizes, random)


def bench():
    made = case(512, 16, 512, 192, 128, numpy.random.default_rng(1))
    made.emulate, made.bytes = False, 8 * 512 * 16 * 576
    yield made
