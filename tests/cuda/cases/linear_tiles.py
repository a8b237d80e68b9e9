import numpy
from matrices import tiled
from run import Case

from reflex.ops.gated import UNITS

from .halves import halves, stored
from .linear_plain import weights_of

TILES = {"32_narrow": (32, 32), "32": (32, 64), "64": (64, 128)}  # tokens and weight rows of a block
SHARED = 65536
UNUSED = numpy.zeros(1, "u1"), 0, 0, numpy.zeros(1, "f4"), 0, numpy.zeros(1, "f4"), 0
FORMATS = tiled()
HALF = 2.0**-11  # relative rounding of a half


def matrix(block, rows, columns, random):
    data, w = weights_of(block, rows, columns, random)
    return block.id, data, w, random.standard_normal(rows, "f4")


def case(label, tile, tokens, columns, matrices, mode, random, biased=True, act=0, scale=0.5, emulate=True):
    """matrices: of matrix(). The bound: each product's operands are rounded to halves, weights after two roundings."""
    x = random.standard_normal((tokens, columns), "f4")
    xh, factor = halves(x, None, 0)
    x = xh[:, :columns].astype("f4") * factor[:, None]
    products = [x @ w.T + biased * bias for _, _, w, bias in matrices]
    error = 4 * HALF * max(float((numpy.abs(x[:8]) ** 2 @ (w.T**2)).max()) ** 0.5 for _, _, w, _ in matrices)
    block_tokens, rows = TILES[tile]
    args, wanted, total = [stored(xh), factor, tokens, columns], {}, 0
    for i, (id, data, w, bias) in enumerate(matrices):
        stride = len(w) + 5
        out = random.standard_normal((tokens, stride), "f4")
        result = out.copy()
        if mode == 0:
            result[:, : len(w)] = products[i]
        elif mode == 1:
            result[:, : len(w)] += scale * products[i]
        elif i == 0:
            result[:, : len(w)] = list(UNITS.values())[act](products[0], products[1])
        if mode != 1 and not (mode == 2 and i):
            out[:, : len(w)] = numpy.nan
            wanted[9 + 7 * i] = result
        elif mode == 1:
            wanted[9 + 7 * i] = result
        total += -(-(len(w) * (2 if mode == 2 else 1)) // rows) if not (mode == 2 and i) else 0
        args += [data, id, len(w), bias, int(biased), out, stride]
    for _ in range(3 - len(matrices)):
        args += UNUSED
    largest = max(float(numpy.abs(v).max()) for v in wanted.values())
    if mode == 2:
        error *= max(float(numpy.abs(p).max()) for p in products)
    grid = (-(-tokens // block_tokens), total)
    args += [mode, act, scale]
    return Case(label, f"linear_tiles_{tile}", grid, args, wanted, SHARED, max(error / largest, 1e-6), emulate=emulate)


def cases():
    random = numpy.random.default_rng(21)
    for block in FORMATS:
        columns = max(block.elements, 32) * (3 if block.elements <= 32 else 1)
        yield case(f"{block.name}-{columns}", "32_narrow", 19, columns, [matrix(block, 35, columns, random)], 0, random)
    first, second = (next(b for b in FORMATS if b.elements == n) for n in (256, 32))
    yield case("long", "32", 2, 2304, [matrix(b, 3, 2304, random) for b in (first, second)], 0, random)
    yield case("tail", "32", 9, 1312, [matrix(second, 3, 1312, random)], 0, random)
    for tile, act in (("32", 0), ("64", 1), ("32_narrow", 1)):
        three = [matrix(b, rows, 512, random) for b, rows in ((first, 65), (second, 3), (first, 33))]
        yield case("three", tile, TILES[tile][0] + 1, 512, three, 1, random)
        pair = [matrix(first, 35, 768, random) for _ in range(2)]
        yield case("gated", tile, 17, 768, pair, 2, random, biased=bool(act), act=act)


SHAPES = {
    "0.6B-qkv": (1024, (2048, 1024, 1024), 0),
    "0.6B-o": (2048, (1024,), 1),
    "0.6B-gated": (1024, (3072, 3072), 2),
    "0.6B-down": (3072, (1024,), 1),
    "8B-qkv": (4096, (4096, 1024, 1024), 0),
    "8B-o": (4096, (4096,), 1),
    "8B-gated": (4096, (12288, 12288), 2),
    "8B-down": (12288, (4096,), 1),
}


def bench():
    random = numpy.random.default_rng(22)
    kinds = {block.name: block for block in FORMATS}
    for kind, tokens, tile, shapes in (
        ("Q4_K", 32, "32_narrow", SHAPES),
        ("Q4_K", 32, "32", SHAPES),
        ("Q4_K", 512, "64", SHAPES),
        ("Q4_K", 512, "32", [name for name in SHAPES if name.startswith("0.6B")]),
        ("Q6_K", 32, "32_narrow", ["0.6B-down", "8B-down"]),
        ("Q6_K", 512, "64", ["0.6B-down", "8B-down"]),
        ("Q8_0", 512, "64", ["8B-o"]),
        ("F16", 512, "64", ["8B-o"]),
    ):
        for name in shapes:
            columns, rows, mode = SHAPES[name]
            block = kinds[kind]
            matrices = [matrix(block, r, columns, random) for r in rows]
            one = case(f"{kind}-{name}-{tokens}", tile, tokens, columns, matrices, mode, random, biased=False, emulate=False)
            one.flops = 2 * tokens * columns * sum(rows)
            one.bytes = sum(rows) * columns // block.elements * block.nbytes
            yield one
