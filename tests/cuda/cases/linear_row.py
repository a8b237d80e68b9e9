import numpy
from blocks import random_blocks
from run import Case

from reflex import quant
from reflex.ops.gated import UNITS
from reflex.quant.types import TYPES

SLACK = 256  # readable bytes behind every buffer


def fast():
    return [block for block in TYPES.values() if hasattr(quant.load(block.name), "FRAGMENT")]


def tiled():
    """Those with kernels for any number of tokens, and for several formats together."""
    return [block for block in fast() if quant.load(block.name).FRAGMENT.tiled]


class Matrix:
    """Random weights [rows, columns] of one type; `values` in float64."""

    def __init__(self, block, rows, columns, random, biased=False):
        self.block, self.rows, self.biased = block, rows, biased
        blocks = random_blocks(block, 2000, random)  # of values up to 200: a real model's are far below
        blocks = blocks[numpy.abs(quant.load(block.name).decode(blocks)).max(axis=1) < 200]
        blocks = blocks[random.integers(0, len(blocks), rows * columns // block.elements)]
        self.values = quant.load(block.name).decode(blocks).astype(float).reshape(rows, columns)
        self.bytes = numpy.concatenate([blocks.reshape(-1), numpy.full(SLACK, 0x7F, "uint8")])
        self.bias = random.standard_normal(rows, "float32")
        self.out = numpy.full(rows, numpy.nan, "float32")

    def arguments(self, out):
        return [self.bytes, self.block.id, self.rows, self.bias, int(self.biased), out]


NOTHING = [numpy.zeros(1, "uint8"), 0, 0, numpy.zeros(1, "float32"), 0, numpy.zeros(1, "float32")]


def shared_bytes(columns):
    return 1664 + (columns + 255) // 256 * 256 // 4 * 9


def tiles(matrices):
    return sum((m.rows + 15) // 16 for m in matrices)


def case(label, matrices, columns, random, mode=0, act=0, splits=1, normed=False, grid=None, scale=1.0):
    x = random.standard_normal(columns, "float32") * numpy.float32(30)
    norm = random.standard_normal(columns, "float32")
    eps = 1e-6
    h = x.astype(float)
    rms = numpy.sqrt((h * h).mean() + eps)
    if normed:
        h = h * norm / rms
    # what rounding the activations to float16 may change, in standard deviations: 2 ** -11 / sqrt(3) of each at most
    products = [m.values @ h + (m.bias if m.biased else 0) for m in matrices]
    noise = max(numpy.sqrt((m.values**2) @ (h * h)).max() for m in matrices) * 2**-11
    outs = [m.out for m in matrices]
    if mode == 1:
        outs = [random.standard_normal(m.rows, "float32") for m in matrices]
        wanted = [out + scale * y for out, y in zip(outs, products, strict=True)]
        noise *= abs(scale)
    elif mode == 2:
        unit = list(UNITS.values())[act]
        wanted = [unit(products[0], products[1])]
        noise *= max(1, numpy.abs(products[0]).max(), numpy.abs(products[1]).max())
    else:
        wanted = products
    args = [x, norm, int(normed), eps, columns]
    for m, out in zip(matrices, outs, strict=True):
        args += m.arguments(out)
    for _ in range(3 - len(matrices)):
        args += NOTHING
    args += [mode, act, scale, splits]
    largest = max(numpy.abs(w).max() for w in wanted)
    goal = (tiles(matrices) * splits + 7) // 8
    types = {m.block.name for m in matrices}
    return Case(
        label, f"linear_row_{types.pop() if len(types) == 1 else matrices[0].block.elements}", grid or goal, args,
        {10 + 6 * i: w for i, w in enumerate(wanted)},
        shared=shared_bytes(columns), tolerance=3 * noise / largest + 1e-6,
    )  # fmt: skip


def cases():
    random = numpy.random.default_rng(8)
    for block in fast():
        size = max(block.elements, 32)
        for rows, columns, splits in ((1, size, 1), (33, 512 + size % 256, 4)):
            yield case(f"{rows}x{columns}", [Matrix(block, rows, columns, random)], columns, random, splits=splits)
    for size in (32, 256):  # what real files mix, and every mode
        blocks = [b for b in tiled() if b.elements == size]
        for i, block in enumerate(blocks):
            other = blocks[(i + 1) % len(blocks)]
            columns = 768
            three = [Matrix(b, rows, columns, random, biased=rows == 17) for b, rows in ((block, 17), (other, 15), (block, 16))]
            yield case(f"three-{i}", three, columns, random, splits=1 + i % 2, normed=True)
            pair = [Matrix(block, 40, columns, random), Matrix(other, 40, columns, random, biased=i % 2)]
            yield case(f"gated-{i}", pair, columns, random, mode=2, act=i % 2, splits=4, normed=True)
    block = blocks[0]
    for splits in (1, 2, 4, 8):
        some = [Matrix(block, 50, 2304, random, biased=True)]
        yield case(f"add-{splits}", some, 2304, random, mode=1, splits=splits, scale=0.5, grid=1 if splits == 2 else None)


MULTIPROCESSORS, RESIDENT = 132, 3  # of the device that the benches are laid out for; blocks on each


def layout(matrices, columns, mode):
    """(splits, grid): the most warps per tile that need not take turns."""
    steps = columns // 256
    for splits in (8, 4, 2, 1):
        goal = (tiles(matrices) * splits + 7) // 8
        if splits <= steps and (mode < 2 or splits < 8) and goal <= MULTIPROCESSORS * RESIDENT:
            return splits, goal
    return 1, min(goal, MULTIPROCESSORS * RESIDENT)


class Weights(Matrix):
    """As many as in a real model, none of them looked at."""

    def __init__(self, block, rows, columns, random):
        self.block, self.rows, self.biased = block, rows, False
        blocks = random_blocks(block, 4096, random).reshape(-1)
        self.bytes = numpy.resize(blocks, rows * columns // block.elements * block.nbytes + SLACK)
        self.bias = numpy.zeros(1, "float32")
        self.out = numpy.zeros(rows, "float32")


def bench():
    """The products of one layer and the head of models with 0.6, 4 and 8 billion weights."""
    random = numpy.random.default_rng(8)
    types = {block.name: block for block in fast()}
    for name in ("Q4_K", "Q6_K"):
        block = types[name]
        for width, feed, heads in ((1024, 3072, 16), (2560, 9728, 32), (4096, 12288, 32)):
            for label, rows, columns, mode in (
                ("qkv", (heads * 128, 1024, 1024), width, 0), ("o", (width,), heads * 128, 1),
                ("gate-up", (feed, feed), width, 2), ("down", (width,), feed, 1), ("head", (151936,), width, 0),
            ):  # fmt: skip
                matrices = [Weights(block, r, columns, random) for r in rows]
                splits, grid = layout(matrices, columns, mode)
                one = numpy.ones(columns, "float32")
                args = [one, one, int(label not in ("o", "down")), 1e-6, columns]
                for m in matrices:
                    args += m.arguments(m.out)
                args += NOTHING * (3 - len(matrices)) + [mode, 0, 1.0, splits]
                made = Case(f"{label}-{width}", f"linear_row_{name}", grid, args, {}, shared=shared_bytes(columns), emulate=False)
                made.bytes = sum(len(m.bytes) for m in matrices)
                yield made
