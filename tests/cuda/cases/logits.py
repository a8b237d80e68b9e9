import numpy
from run import Case

CHUNK = 4096  # of kernels/cuda/logits.py


def stats_of(x):
    """float32[rows, 4] of finite logits, computed in float64."""
    wide = x.astype("float64")
    top = wide.max(-1)
    total = numpy.exp(wide - top[:, None]).sum(-1)
    ids = x.argmax(-1).astype("int32").view("float32")  # the first of the largest
    return numpy.stack([top.astype("float32"), total.astype("float32"), ids, numpy.log(total).astype("float32")], -1)


class Stats(Case):
    """Compares the id bit for bit, the numbers each against itself, and the counters with zero."""

    def __init__(self, label, x, wanted=None, **given):
        rows, columns = x.shape
        blocks = -(-columns // CHUNK)
        partials = numpy.full((rows, blocks, 4), numpy.nan, "float32")
        args = [x, numpy.full((rows, 4), numpy.nan, "float32"), partials, numpy.zeros(rows, "uint32"), columns]
        super().__init__(label, "logits_stats", (blocks, rows), args, {1: stats_of(x) if wanted is None else wanted}, **given)

    def check(self, args):
        found, wanted = args[1], self.wanted[1]
        if args[3].any():
            yield f"{self.label}: a counter is not back at 0"
        if (found.view("int32")[:, 2] != wanted.view("int32")[:, 2]).any():
            yield f"{self.label}: wrong ids {found.view('int32')[:, 2]}"
        any_sum = wanted[:, 1] != 0  # else the logarithm means nothing
        for column, tolerance, rows in ((0, 0, slice(None)), (1, 1e-6, slice(None)), (3, 1e-6, any_sum)):
            one, other = found[rows, column], wanted[rows, column]
            if not numpy.allclose(one, other, rtol=tolerance, atol=tolerance * 0.1, equal_nan=True):
                yield f"{self.label}: column {column} is {one}, not {other}"


def stats_cases(random):
    for rows, columns in ((1, 1), (2, 31), (1, 4096), (2, 4097), (2, 8196), (1, 12289)):
        yield Stats(f"{rows}x{columns}", 3 * random.standard_normal((rows, columns), "float32"))
    x = random.standard_normal((4, 8200), "float32")
    x[0, [5, 4095, 4096, 8199]] = 7.0  # ties within and between blocks
    x[1] = -1.5
    x[2, [8192, 8193]] = 9.0
    x[3, :] = -numpy.inf
    x[3, [4099, 4100]] = -2.0
    yield Stats("ties", x)
    x = numpy.full((1, 4100), -60.0, "float32")
    x[0, 4099] = 30.0
    yield Stats("one certain", x)
    x = numpy.stack([numpy.full(4100, numpy.nan), numpy.zeros(4100), numpy.full(4100, -numpy.inf)]).astype("float32")
    x[1, 3] = numpy.nan
    wanted = numpy.zeros((3, 4), "float32")
    wanted[:, 0], wanted[:, 1] = (-numpy.inf, 0, -numpy.inf), (numpy.nan, numpy.nan, 0)
    wanted[:, 2] = numpy.array([-1, 0, 0], "int32").view("float32")
    wanted[:, 3] = numpy.nan
    yield Stats("no number", x, wanted)


def logprobs_case(label, rows, columns, count, random, extreme=False, **given):
    x = 4 * random.standard_normal((rows, columns), "float32")
    x[-1, columns // 2] = 40.0  # nearly certain: its logarithm is close to 0
    if extreme:
        x[:] = -1000.0
        x[:, columns // 3], x[:, columns // 2] = 1000.0, 999.0
    stats = stats_of(x)
    which, ids = random.integers(0, rows, count).astype("int32"), random.integers(0, columns, count).astype("int32")
    which[-1], ids[-1] = rows - 1, columns // 2
    wide = x.astype("float64")
    top = wide.max(-1, keepdims=True)
    all_of_them = wide - top - numpy.log(numpy.exp(wide - top).sum(-1, keepdims=True))
    out = numpy.full(count, numpy.nan, "float32")
    args = [x, stats, which, ids, out, columns, count]
    return Case(label, "logprobs", (count + 127) // 128, args, {4: all_of_them[which, ids]}, tolerance=1e-6, **given)


def cases():
    random = numpy.random.default_rng(1)
    yield from stats_cases(random)
    yield logprobs_case("one", 1, 33, 1, random)
    yield logprobs_case("many", 3, 1000, 131, random)
    yield logprobs_case("extreme", 2, 1000, 131, random, extreme=True)


def bench():
    random = numpy.random.default_rng(1)
    for rows in (1, 16):
        for columns in (151936, 262144):
            made = Stats(f"{rows}x{columns}", 3 * random.standard_normal((rows, columns), "float32"), emulate=False)
            made.bytes = 4 * rows * columns
            yield made
    yield logprobs_case("1x151936", 1, 151936, 64, random, emulate=False)
