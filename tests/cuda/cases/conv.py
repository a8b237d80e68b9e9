import numpy
from run import Addresses, Case
from strands import BEFORE, places_of, words_of

from reflex.ops import conv as op
from reflex.ops import gated

SILU, BIASED = 1, 2
ABSENT = numpy.zeros(1, "float32")


def case(ones, random, silu=0, **options):
    """Buffers that go through one launch; what differs between them is `n` alone."""
    places, lefts, args, wanted, at, blocks = [[], [], []], [[], [], []], [], {}, BEFORE, 0
    for number, one in enumerate(ones):
        (x, w, b), words = op.inputs(one, random)
        first, n, taps, states = one["first"], one["n"], one["taps"], words["states"].copy()
        out = op.reference(x, w, b, **words)
        wanted[6 * number + 3] = gated.silu(out) if silu else out
        own_b = ABSENT if b is None else b[first : first + n].copy()
        args += [x, w[first : first + n].copy(), own_b, numpy.full_like(x, numpy.nan), at, n]
        for place, left, before, after in zip(places, lefts, states, words["states"], strict=True):
            place.append(before)
            left.append(after)
        at += states.shape[1]
        blocks += (n + 127) // 128
    for _ in range(3 - len(ones)):
        args += [ABSENT, ABSENT, ABSENT, ABSENT.copy(), 0, 0]
    args += [Addresses(places_of(map(numpy.concatenate, places))), words_of(words["strands"])]
    args += [taps, SILU * silu + BIASED * (b is not None)]
    wanted[18] = places_of(map(numpy.concatenate, lefts))
    rows = one["rows"]
    grid = blocks, 1 if rows < taps else 1 + (rows + 7) // 8
    label = f"{rows}x{'+'.join(str(one['n']) for one in ones)} of {taps}" + " silu" * silu
    return Case(label, "conv", grid, args, wanted, tolerance=op.TOLERANCE, **options)


def several(rows, *sizes, **more):
    one = {"rows": rows, "first": 0, "taps": 4, "bias": True} | more
    return [{**one, "n": n, "channels": n} for n in sizes]


def cases():
    random = numpy.random.default_rng(1)
    for one in (*op.CASES, {"rows": 2, "n": 257, "channels": 257, "first": 0, "taps": 4, "bias": True}):
        yield case([one], random)
    yield case(several(33, 130, 1, 40), random, silu=1)
    yield case(several(1, 31, 33, bias=False), random, silu=1)
    yield case(several(3, 5), random)
    yield case(several(40, 64), random)


def bench():
    random = numpy.random.default_rng(1)
    for one in op.BENCH:
        made = case([one], random, emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
        made = case(several(one["rows"], 2048, 2048, 4096, bias=False), random, silu=1, emulate=False)
        made.bytes = 8 * one["rows"] * one["n"]
        yield made
