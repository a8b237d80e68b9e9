import numpy
from run import Case

from reflex.sample import penalize


def case(label, recent, columns, penalty, random, **given):
    x = random.standard_normal(columns, "float32")
    wanted = x.tolist()
    penalize(wanted, {token for token in recent if token >= 0}, penalty)
    saved = numpy.full(len(recent), numpy.nan, "float32")
    kept = numpy.array([x[token] if token >= 0 else numpy.nan for token in recent], "float32")
    settings = numpy.array([0.8, 0, 1, 0, 0, penalty], "float64")
    args = [x, numpy.array(recent, "int32"), saved, settings, len(recent)]
    made = Case(label, "penalize", 1, args, {0: numpy.array(wanted, "float32")}, tolerance=0, **given)
    if min(recent) >= 0:
        made.wanted[2] = kept
    return made


def cases():
    random = numpy.random.default_rng(1)
    yield case("one", [3], 5, 1.3, random)
    yield case("empty places", [-1, 2, -1], 5, 1.3, random)
    yield case("repeated", random.integers(0, 40, 300).tolist(), 64, 1.1, random)
    yield case("encouraged", [0, 1, 2, 2], 4, 0.5, random)


def bench():
    yield case("64", list(range(64)), 151936, 1.1, numpy.random.default_rng(1), emulate=False)
