import numpy
from run import Case


def case(rows, experts, columns, random, normed=True, biased=False, one=False, emulate=True):
    x, norm = (3 * random.standard_normal(shape, "float32") for shape in ((rows, columns), columns))
    w, bias = random.standard_normal((experts, columns), "float32"), random.standard_normal(experts, "float32")
    h, eps = x.astype("f8"), 1e-6
    if normed:
        h = h * norm / numpy.sqrt((h * h).mean(1, keepdims=True) + eps)
    wanted = h @ w.astype("f8").T + biased * bias
    args = [x, norm, int(normed), eps, columns, w, bias, int(biased), numpy.full((rows, experts), numpy.nan, "f4")]
    grid = experts
    if not one:
        args += [experts, rows]
        grid = -(-experts // 16), -(-rows // 8)
    name = "router_row" if one else "router_rows"
    made = Case(f"{rows}x{experts}x{columns}", name, grid, args, {8: wanted}, tolerance=1e-5, emulate=emulate)
    made.bytes = w.nbytes
    return made


def cases():
    random = numpy.random.default_rng(33)
    yield case(1, 3, 2052, random, one=True)
    yield case(1, 2, 36, random, normed=False, biased=True, one=True)
    yield case(9, 5, 260, random)
    yield case(1, 4, 128, random, normed=False, biased=True)
    yield case(17, 33, 96, random, biased=True)


def bench():
    random = numpy.random.default_rng(34)
    yield case(1, 128, 2048, random, one=True, emulate=False)
    yield case(32, 128, 2048, random, emulate=False)
    yield case(512, 128, 2048, random, emulate=False)
