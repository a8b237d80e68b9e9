import numpy
from run import Case

from reflex.sample import MASK, uniform

SEED = 0xDEADBEEFCAFEF00D
COLUMNS = 50


def case(label, token, stop=0, tokens=3, most=10, ends=(7, 9), recent=(), was_stopped=0, capacity=4, places=()):
    """One step from token number `tokens`; `stop`: what is wanted in the stop flag."""
    random = numpy.random.default_rng(tokens)
    logits = random.standard_normal(COLUMNS).astype("float32")
    stats = numpy.array([logits.max(), 20.0, 0, numpy.log(20.0)], "float32")
    ids, positions = numpy.array([5], "int32"), numpy.array([100], "int32")
    cells = numpy.array([1, 200, 1, was_stopped] + [0] * 12, "int32")
    state = numpy.array([SEED, tokens, tokens, most, len(recent) - 1 if recent else 0], "uint64").view("int64")
    settings = numpy.array([0.8, 40, 0.9, 0.1, 0.25, 1.1], "float64")
    history = numpy.zeros(4 + 2 * capacity, "uint32")
    ring = numpy.array([*recent, -1], "int32")
    old = random.standard_normal(len(logits)).astype("float32")
    saved = old[[*(max(i, 0) for i in recent), 0]]  # an id that repeats was saved twice, with one logit
    args = [
        numpy.array([token], "int32"), logits, stats, ids, positions, cells, numpy.array([*ends, -5], "int32"), len(ends), state,
        settings, history, capacity, ring, len(recent), saved, numpy.array([1, 0, 1, 8, 9], "int32"),
        numpy.array([*places, -1], "int32"), len(places),
    ]  # fmt: skip
    after = [a.copy() if isinstance(a, numpy.ndarray) else a for a in args]
    for i, other in enumerate(recent):
        if other >= 0:
            after[1][other] = saved[i]
    if not was_stopped:
        moves(after, token, stop, tokens, len(recent))
    wanted = {i: a for i, a in enumerate(after) if isinstance(a, numpy.ndarray)}
    return Case(label, "advance", 1, args, wanted, tolerance=0)


def moves(after, token, stop, tokens, recent):
    """What a step that is not stopped changes."""
    _, logits, stats, ids, positions, cells, _, _, state, settings, history, capacity, ring, _, _, strands, places, count = after
    logprob = numpy.float32(numpy.float32(logits[token] - stats[0]) - stats[3]) if token >= 0 else numpy.float32(0)
    place = 4 + 2 * (tokens % capacity)
    history[place : place + 2] = numpy.array([token], "int32").view("uint32")[0], logprob.view("uint32")
    history[:2] = tokens + 1, stop
    state[2] += 1
    cells[3] = stop
    if stop == 0:
        ids[0] = token
        positions[0] += 1
        cells[1] += 1
        state[1] += 1
        settings[4] = uniform(SEED & MASK, tokens + 1)
        if count:
            strands[3:] = places[tokens % count], places[(tokens + 1) % count]
        if recent:
            ring[state[4]] = token
            state[4] = (state[4] + 1) % recent


def cases():
    yield case("plain", 11)
    yield case("an end", 9, stop=1)
    yield case("the last", 11, stop=2, tokens=9)
    yield case("the last and an end", 7, stop=1, tokens=9)
    yield case("stopped before", 11, was_stopped=1)
    yield case("no number", -1, stop=3)
    yield case("no ends", 7, ends=())
    yield case("many ends", 49, stop=1, ends=(*range(100, 300), 49))
    yield case("penalty", 11, recent=(4, -1, 11, 4, 20))
    yield case("states", 11, places=(4, 2, 7), recent=(4, 20))
    yield case("states, the ring's end", 11, tokens=5, places=(4, 2, 7))
    yield case("states, stopped before", 11, places=(4, 2, 7), was_stopped=1)
    yield case("penalty and stopped", 11, recent=(4, -1, 11, 4, 20), was_stopped=2)


def bench():
    yield case("plain", 11)
