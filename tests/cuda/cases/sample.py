import numpy
from run import Case

from reflex.sample import choose

BINS, MOST, CHUNK = 1024, 2048, 4096  # of kernels/cuda/sample.py
CLOSE = 1e-6  # a draw this close to a border may fall on either side
OFF = (0, 1.0, 0.0)  # top_k, top_p, min_p
FILTERS = (OFF, (1, 1.0, 0.0), (40, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.05), (40, 0.95, 0.05), (2000, 0.5, 0.001), (0, 0.3, 0.2))


def bins_of(x, temperature, filters):
    """int64[2, BINS]: how many logits fall into each bin, and their weights in units of 2^-38."""
    below = (x.max() - x).astype("float32")
    finite = numpy.minimum(below, 1e6)
    coarse = numpy.where(below < 271, 512 + numpy.floor((finite - 16) * 2), BINS - 1)
    place = numpy.where(below < 16, finite * 32, coarse).astype(int)
    scale = 1 / temperature if filters == OFF else 1.0
    weights = numpy.rint(numpy.exp(-finite.astype("float64") * scale) * 2.0**38).astype("int64")
    out = numpy.zeros((2, BINS), "int64")
    numpy.add.at(out[0], place, 1)
    numpy.add.at(out[1], place, weights)
    return out


def stats_of(x):
    best = numpy.array([x.argmax()], "int32").view("float32")[0]
    return numpy.array([x.max(), 1, best, 0], "float32")


def settings_of(temperature, filters, random):
    return numpy.array([temperature, *filters, random], "float64")


class Order:
    """Logits in the order of candidates; `draw` is reflex.sample.choose for many settings of one row."""

    def __init__(self, x):
        self.ids = numpy.argsort(-x, kind="stable")
        self.below = x[self.ids].astype("float64") - float(x.max())

    def draw(self, temperature, top_k, top_p, min_p, random):
        below = self.below[: top_k or None]
        likely = numpy.exp(below)
        if top_p < 1:
            mass = numpy.cumsum(likely)
            below = below[: numpy.searchsorted(mass, top_p * mass[-1]) + 1]
        if min_p > 0:
            below = below[numpy.exp(below) >= min_p]
        mass = numpy.cumsum(numpy.exp(below / temperature))
        return int(self.ids[min(numpy.searchsorted(mass, random * mass[-1], "right"), len(mass) - 1)])


def expected(order, temperature, filters, random):
    """The token, or None where a change in the last digits would give another."""
    tokens = set()
    for shift in (-CLOSE, 0, CLOSE):
        top_k, top_p, min_p = filters
        moved = (top_k, min(1.0, top_p * (1 + shift)) if top_p < 1 else 1.0, min_p * (1 + shift))
        for draw in (max(0.0, random - CLOSE), random, min(1 - 1e-9, random + CLOSE)):
            tokens.add(order.draw(temperature, *moved, draw))
    return tokens.pop() if len(tokens) == 1 else None


def bins_case(label, x, temperature, filters, **given):
    scratch = numpy.zeros(2 * BINS + MOST, "int64")
    args = [x, stats_of(x), settings_of(temperature, filters, 0.5), scratch, x.size]
    wanted = scratch.copy()
    wanted[: 2 * BINS] = bins_of(x, temperature, filters).reshape(-1)
    case = Case(label, "sample_bins", (x.size + CHUNK - 1) // CHUNK, args, {3: wanted}, tolerance=1e-6, **given)
    return case


class Draw(Case):
    """Also wants the scratch and the counters as a next launch needs them."""

    def __init__(self, label, x, temperature, filters, random, token, most=MOST, **given):
        scratch = numpy.full(2 * BINS + MOST, -1, "int64")
        scratch[: 2 * BINS] = bins_of(x, temperature or 1.0, filters).reshape(-1)
        settings = settings_of(temperature, filters, random)
        chosen = numpy.array([-7], "int32")
        args = [x, stats_of(x), settings, scratch, numpy.zeros(2, "uint32"), chosen, x.size, most]
        blocks = (x.size + CHUNK - 1) // CHUNK
        super().__init__(label, "sample", blocks, args, {5: numpy.array([token], "int32")}, tolerance=0, **given)

    def check(self, args):
        yield from super().check(args)
        if args[3][: 2 * BINS].any() or args[4].any():
            yield f"{self.label}: the scratch is not back at 0"


def rows(random, count):
    """Logits of several shapes."""
    yield "wide", 3 * random.standard_normal(count, "float32")
    yield "flat", numpy.full(count, 2.5, "float32")
    yield "ties", random.integers(-3, 4, count).astype("float32")
    far = 30 * random.standard_normal(count, "float32")
    far[::3] = -numpy.inf
    yield "far", far


def draws(label, x, random, most, choices, times, **given):
    """Cases for every filter; draws whose answer hangs on the last digits are drawn again."""
    order = Order(x)
    for number, filters in enumerate(choices):
        for _ in range(times):
            temperature = (0.7, 1.0, 1.8)[int(random.integers(3))]
            token = None
            while token is None:
                draw = float(random.random())
                token = expected(order, temperature, filters, draw)
            how = "listed" if most else "narrowed"
            yield Draw(f"{label}-{x.size}-{number}-{how}", x, temperature, filters, draw, token, most, **given)


def cases():
    random = numpy.random.default_rng(3)
    for label, x in rows(random, 700):
        yield bins_case(f"{label}-bins", x, 0.7, OFF)
        yield from draws(label, x, random, MOST, FILTERS if label == "wide" else FILTERS[5:7], 1)
        yield from draws(label, x, random, 0, FILTERS[::2] if label == "ties" else FILTERS[5:6], 1)
    for label, x in rows(random, 4101):
        yield bins_case(f"{label}-bins", x, 1.3, (40, 1.0, 0.0))
        yield from draws(label, x, random, MOST, (OFF,), 1)
    for label, x in rows(random, 151936):
        yield bins_case(f"{label}-bins", x, 1.3, OFF, emulate=False)
        yield from draws(label, x, random, MOST, (OFF, FILTERS[3], FILTERS[5]), 1, emulate=False)
        yield from draws(label, x, random, 0, (OFF, FILTERS[6]), 1, emulate=False)
    x = 3 * random.standard_normal(33, "float32")
    for end, draw in (("first", 0.0), ("last", 1 - 2.0**-53)):
        yield Draw(f"the {end} of all", x, 1.0, OFF, draw, choose(x.tolist(), 1.0, *OFF, draw))
        yield Draw(f"the {end} of five", x, 1.0, (5, 1.0, 0.0), draw, choose(x.tolist(), 1.0, 5, 1.0, 0.0, draw), 0)
    yield Draw("greedy", x, 0.0, OFF, 0.9, int(x.argmax()))
    yield Draw("cold", x, 1e-30, OFF, 0.9, int(x.argmax()))
    yield Draw("one column", x[:1], 1.0, (3, 0.5, 0.1), 0.9, 0)


def bench():
    random = numpy.random.default_rng(4)
    for columns in (151936, 262144):
        x = 3 * random.standard_normal(columns, "float32")
        made = bins_case(f"bins-{columns}", x, 0.7, OFF, emulate=False)
        made.bytes = 4 * columns
        yield made
        made = Draw(f"none-{columns}", x, 1.0, OFF, 0.5, 0, emulate=False)  # from the second launch on the bins are empty
        made.bytes = 4 * columns
        yield made
