import numpy
from matrices import NOTHING, Matrix, Weights, fast, tiled, tiles
from run import Case

from reflex.ops.gated import UNITS
from reflex.quant.types import TYPES

from .expert_order import arranged
from .expert_order import routed as routes_of

UNROUTED = 0, numpy.zeros(1, "int32"), numpy.zeros(4, "int32"), 0, 0, 0


def halves(x):
    """(xh, factor) as the kernel `halves` makes them, and the rounded values."""
    count, columns = x.shape
    padded = (columns + 31) // 32 * 32
    wide = numpy.zeros((count, padded), "float32")
    wide[:, :columns] = x
    exponents = numpy.frexp(numpy.abs(wide).max(axis=1))[1] - 15
    factor = numpy.ldexp(numpy.float32(1), exponents).astype("float32")
    rounded = (wide / factor[:, None]).astype("float16")
    swizzled = rounded.reshape(count, -1, 4)[:, :, [0, 2, 1, 3]]
    values = rounded.astype(float) * factor[:, None]
    return numpy.ascontiguousarray(swizzled).view("uint32").reshape(count, padded // 2), factor, values[:, :columns]


def blocks_of(matrices, splits, tokens):
    """Blocks of a launch; of 32 tokens of a tiled format a warp has two tiles."""
    pairs = 1 + (tokens == 32 and matrices[0].block in tiled())
    return ((tiles(matrices) + pairs - 1) // pairs * splits + 7) // 8


def routed(block, tokens, used, rows, columns, random, apart, biased, mode=0, splits=1, experts=3):
    """Pairs of a row and an expert, of two stacks in one launch; mode 1 adds to what is there, 2 is silu(gate) * up."""
    count, label = 1 if mode == 1 else 2, f"experts-{tokens}x{used}-{mode}"
    stacks = [Matrix(block, experts * rows, columns, random, biased) for _ in range(count)]
    chosen, _ = routes_of(tokens, experts, used, random)
    order, cut = arranged(chosen, experts, 32)
    each, pairs = 1 if apart else used, chosen.reshape(-1)
    xh, factor, x = halves(random.standard_normal((tokens * used // each, columns), "float32"))
    h = x[numpy.arange(len(pairs)) // each]
    products, noise = [], 0
    for m in stacks:
        w, b = m.values.reshape(experts, rows, columns), m.bias.reshape(experts, rows)
        products.append(numpy.stack([w[e] @ h[p] + biased * b[e] for p, e in enumerate(pairs)]))
        noise = max(noise, numpy.sqrt((h**2) @ (m.values**2).T).max() * 2**-11)
    if mode == 2:
        noise *= max(1, *(numpy.abs(p).max() for p in products))
        products = [next(iter(UNITS.values()))(*products)]
    args, wanted = [xh, factor, 0, columns], {}
    for i, m in enumerate(stacks):
        out = random.standard_normal((len(pairs), rows + 3), "float32")
        if i < len(products):
            wanted[9 + 7 * i] = numpy.concatenate([products[i] + (mode == 1) * out[:, :rows], out[:, rows:]], 1)
        args += [m.bytes, block.id, rows, m.bias, int(biased), out, rows + 3]
    args += [*NOTHING, 0] * (3 - count) + [mode, 0, 1.0, splits, each, order, cut]
    args += [rows * columns // block.elements * block.nbytes] * 2 + [rows]
    grid = blocks_of([Rows(block, rows)] * count, splits, 32), len(cut)
    largest = max(numpy.abs(w).max() for w in wanted.values())
    return Case(label, f"linear_rows_32_{block.name}", grid, args, wanted, tolerance=4 * noise / largest + 1e-6)


class Rows:
    """What blocks_of asks of a matrix."""

    def __init__(self, block, rows):
        self.block, self.rows = block, rows


def case(label, matrices, count, columns, random, mode=0, act=0, splits=1, scale=1.0, tokens=8):
    xh, factor, x = halves(random.standard_normal((count, columns), "float32") * numpy.float32(3))
    products = [x @ m.values.T + (m.bias if m.biased else 0) for m in matrices]
    # what rounding the scaled weights to float16, three times at most, may change: standard deviations
    noise = max(numpy.sqrt((x**2) @ (m.values**2).T).max() for m in matrices) * 2**-11
    outs = [random.standard_normal((count, m.rows + 3), "float32") for m in matrices]
    wanted = [out.astype(float) for out in outs]
    for out, product, m in zip(wanted, products, matrices, strict=True):
        out[:, : m.rows] = product if mode == 0 else out[:, : m.rows] + scale * product
    if mode == 2:
        wanted = [outs[0].astype(float)]
        wanted[0][:, : matrices[0].rows] = list(UNITS.values())[act](products[0], products[1])
        noise *= max(1, numpy.abs(products[0]).max(), numpy.abs(products[1]).max())
    args = [xh, factor, count, columns]
    for m, out in zip(matrices, outs, strict=True):
        args += [*m.arguments(out), out.shape[1]]
    args += [*NOTHING, 0] * (3 - len(matrices)) + [mode, act, scale, splits, *UNROUTED]
    largest = max(numpy.abs(w).max() for w in wanted)
    grid = blocks_of(matrices, splits, tokens)
    return Case(
        label, f"linear_rows_{tokens}_{matrices[0].block.name}", grid, args,
        {9 + 7 * i: w for i, w in enumerate(wanted)}, tolerance=4 * noise / largest + 1e-6,
    )  # fmt: skip


def cases():
    random = numpy.random.default_rng(9)
    for i, block in enumerate(fast()):
        columns = 512 + max(block.elements, 32) % 256
        if block not in tiled():
            some = [Matrix(block, 33, columns, random, biased=True)]
            yield case("any", some, (3, 32, 16, 17)[i % 4], columns, random, splits=1 + i % 2, tokens=32)
            words = {"apart": bool(i & 1), "biased": bool(i & 2), "mode": i % 3, "splits": 1 + (i & 1)}
            yield routed(block, (2, 1, 5)[i % 3], 2, 20, max(block.elements, 32) * (1 + i % 2), random, **words)
            continue
        yield case("5", [Matrix(block, 33, columns, random, biased=True)], 5, columns, random, splits=1 + i % 2)
        yield case("16", [Matrix(block, 17, 256, random)], 16, 256, random, splits=8, tokens=16)
        pair = [Matrix(block, 20, 256, random), Matrix(block, 20, 256, random, biased=True)]
        yield case("gated", pair, 9, 256, random, mode=2, act=i % 2, splits=4, tokens=16)
        one, count = [Matrix(block, 33, columns, random, biased=True)], (17, 25, 31, 32)[i % 4]
        yield case("32", one, count, columns, random, splits=1 + i % 2, tokens=32)
        yield case("gated-32", pair, 32 - i, 256, random, mode=2, act=i % 2, splits=8, tokens=32)
    block = tiled()[-2]
    some = TYPES[39]
    yield routed(some, 40, 2, 20, 96, random, apart=False, biased=True, mode=2, splits=2)
    three = [Matrix(block, rows, 768, random, biased=rows == 17) for rows in (17, 15, 130)]
    for splits in (1, 2, 8):
        yield case(f"three-{splits}", three, 2, 768, random, splits=splits, mode=splits & 1, scale=0.5)
        yield case(f"three-32-{splits}", three, 30, 768, random, splits=splits, mode=splits & 1, scale=0.5, tokens=32)


MULTIPROCESSORS, RESIDENT = 132, 3  # of the device that the benches are laid out for; blocks on each


def layout(matrices, columns, mode):
    """(splits, grid): the most warps per tile that need not take turns."""
    steps = columns // 256
    for splits in (8, 4, 2, 1):
        goal = (tiles(matrices) * splits + 7) // 8
        if splits <= steps and (mode < 2 or splits < 8) and goal <= MULTIPROCESSORS * RESIDENT:
            return splits, goal
    return 1, min(goal, MULTIPROCESSORS * RESIDENT)


def bench():
    random = numpy.random.default_rng(9)
    types = {block.name: block for block in fast()}
    for name in ("Q4_K", "Q6_K"):
        for width, feed, heads in ((1024, 3072, 16), (2560, 9728, 32), (4096, 12288, 32)):
            for label, rows, columns, mode in (
                ("qkv", (heads * 128, 1024, 1024), width, 0), ("o", (width,), heads * 128, 1),
                ("gate-up", (feed, feed), width, 2), ("down", (width,), feed, 1),
            ):  # fmt: skip
                matrices = [Weights(types[name], r, columns, random) for r in rows]
                usual, _ = layout(matrices, columns, mode)
                for tokens in (8, 16, 32):
                    for splits in (usual,) if tokens < 32 else (1, 2, 4, 8):
                        yield timed(f"{label}-{width}-{splits}", matrices, tokens, columns, random, mode, splits)


def timed(label, matrices, tokens, columns, random, mode, splits):
    xh, factor, _ = halves(random.standard_normal((tokens, columns), "float32"))
    args = [xh, factor, tokens, columns]
    for m in matrices:
        args += [*m.arguments(numpy.zeros((tokens, m.rows), "float32")), m.rows]
    args += [*NOTHING, 0] * (3 - len(matrices)) + [mode, 0, 1.0, splits, *UNROUTED]
    kernel = f"linear_rows_{tokens}_{matrices[0].block.name}"
    made = Case(label, kernel, blocks_of(matrices, splits, tokens), args, {}, emulate=False)
    made.bytes = sum(len(m.bytes) for m in matrices)
    made.flops = 2 * sum(m.rows for m in matrices) * columns * tokens
    return made
