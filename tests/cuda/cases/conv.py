import numpy
from run import Case
from strands import BEFORE, given

from reflex.ops import conv as op


def case(one, random, **options):
    (x, w, b), words = op.inputs(one, random)
    first, n, taps = one["first"], one["n"], one["taps"]
    places, strands, wanted, left = given(words, lambda words: op.reference(x, w, b, **words))
    own_b = numpy.zeros(1, "float32") if b is None else b[first : first + n].copy()
    out, sizes = numpy.full_like(x, numpy.nan), (n, taps, int(b is not None))
    args = [x, w[first : first + n].copy(), own_b, out, places, strands, BEFORE, *sizes]
    options |= {"tolerance": op.TOLERANCE}
    return Case(f"{one['rows']}x{n} of {taps}", "conv", (n + 127) // 128, args, {3: wanted, 4: left}, **options)


def cases():
    random = numpy.random.default_rng(1)
    for one in (*op.CASES, {"rows": 2, "n": 257, "channels": 257, "first": 0, "taps": 4, "bias": True}):
        yield case(one, random)


def bench():
    for one in op.BENCH:
        made = case(one, numpy.random.default_rng(1), emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
