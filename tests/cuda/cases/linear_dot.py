import numpy
from matrices import NOTHING, Matrix, Weights
from run import Case

from reflex import quant
from reflex.ops.gated import UNITS
from reflex.quant.types import TYPES

MULTIPROCESSORS = 132  # of the device that the benches are laid out for
LANES_BLOCKS = 4  # blocks of 256 weights that a strand reads at once


def fast():
    return [block for block in TYPES.values() if hasattr(quant.load(block.name), "DOT")]


def shared_bytes(columns):
    return (columns + 255) // 256 * 256 // 2 * 5


def units(matrices, mode):
    return matrices[0].rows if mode == 2 else sum((m.rows + 1) // 2 for m in matrices)


def kernel(matrices):
    return f"linear_dot_{matrices[0].block.name}"


def case(label, matrices, columns, random, mode=0, act=0, splits=1, normed=False, grid=None, scale=1.0):
    x = random.standard_normal(columns, "float32") * numpy.float32(30)
    norm = random.standard_normal(columns, "float32")
    eps = 1e-6
    h = x.astype(float)
    rms = numpy.sqrt((h * h).mean() + eps)
    if normed:
        h = h * norm / rms
    products = [m.values @ h + (m.bias if m.biased else 0) for m in matrices]
    # rounding changes an activation by 1 / (2 * 8127) of its group's largest at most; in standard deviations
    steps = numpy.abs(h).reshape(-1, 32).max(axis=1).repeat(32) / 8127 / numpy.sqrt(12)
    noise = max(numpy.sqrt((m.values**2) @ (steps * steps)).max() for m in matrices) * 2
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
    args += NOTHING * (3 - len(matrices)) + [mode, act, scale, splits]
    largest = min(numpy.abs(w).max() for w in wanted)  # each result is compared with its own largest value
    goal = (units(matrices, mode) * splits + 15) // 16
    return Case(
        label, kernel(matrices), grid or goal, args, {10 + 6 * i: w for i, w in enumerate(wanted)},
        shared=shared_bytes(columns), tolerance=3 * noise / largest + 1e-6,
    )  # fmt: skip


def cases():
    random = numpy.random.default_rng(8)
    for block in fast():
        yield case("small", [Matrix(block, 1, 256, random)], 256, random)
        yield case("odd", [Matrix(block, 33, 1280, random)], 1280, random, splits=2, grid=2)
        three = [Matrix(block, rows, 768, random, biased=rows == 17) for rows in (17, 15, 16)]
        yield case("three", three, 768, random, normed=True)
        pair = [Matrix(block, 37, 1024, random), Matrix(block, 37, 1024, random, biased=True)]
        for splits in (1, 4):
            yield case(f"gated-{splits}", pair, 1024, random, mode=2, act=splits // 4, splits=splits, normed=True)
        yield flagged(case("late", pair[:1], 1024, random), 4)
        yield flagged(case("beside", pair[:1], 1024, random), 8)
    block = fast()[0]
    for splits in (1, 2, 4, 8, 16):
        some, grid = [Matrix(block, 9, 2304, random, biased=True)], 2 if splits == 8 else None
        yield case(f"add-{splits}", some, 2304, random, mode=1, splits=splits, scale=0.5, grid=grid)


def flagged(made, flags):
    made.args[-4] += flags
    return made


def layouts(matrices, columns, mode):
    """(splits, grid) worth comparing."""
    for splits in (1, 2, 4, 8):
        goal = (units(matrices, mode) * splits + 15) // 16
        if splits * LANES_BLOCKS < 2 * (columns // 256) and (splits == 1 or goal <= 8 * MULTIPROCESSORS):
            for grid in sorted({min(goal, MULTIPROCESSORS * 2), min(goal, MULTIPROCESSORS * 3)}):
                yield splits, grid


def timed(label, matrices, columns, mode, splits, grid):
    x = numpy.ones(columns, "float32")
    args = [x, x.copy(), int(label not in ("o", "down")), 1e-6, columns]
    for m in matrices:
        args += m.arguments(m.out)
    args += NOTHING * (3 - len(matrices)) + [mode, 0, 1.0, splits]
    made = Case(
        f"{label}-{columns if mode != 1 else matrices[0].rows} s{splits} g{grid}", kernel(matrices), grid, args, {},
        shared=shared_bytes(columns), emulate=False,
    )  # fmt: skip
    made.bytes = sum(len(m.bytes) for m in matrices)
    return made


def bench():
    """The products of one layer and the head of models with 0.6, 4 and 8 billion weights, in every layout that may be best."""
    random = numpy.random.default_rng(8)
    for block in fast():
        for width, feed, heads in ((1024, 3072, 16), (2560, 9728, 32), (4096, 12288, 32)):
            for label, rows, columns, mode in (
                ("qkv", (heads * 128, 1024, 1024), width, 0), ("o", (width,), heads * 128, 1),
                ("gate-up", (feed, feed), width, 2), ("down", (width,), feed, 1), ("head", (151936,), width, 0),
            ):  # fmt: skip
                matrices = [Weights(block, r, columns, random) for r in rows]
                for splits, grid in layouts(matrices, columns, mode):
                    yield timed(label, matrices, columns, mode, splits, grid)
