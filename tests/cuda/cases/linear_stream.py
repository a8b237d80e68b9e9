import numpy
from matrices import NOTHING, Matrix, tiles
from run import Case

from reflex import quant
from reflex.ops.gated import UNITS
from reflex.quant.stream import WARPS
from reflex.quant.types import TYPES


def fast():
    return [block for block in TYPES.values() if hasattr(quant.load(block.name), "STREAM")]


def rounded(h):
    """To half floats whose exponent has no limits."""
    significand, exponent = numpy.frexp(h)
    return numpy.ldexp(numpy.round(significand * 2048), exponent - 11)


def case(
    label, matrices, columns, random, mode=0, act=0, splits=1, normed=False, grid=None, scale=1.0, flags=0, runs=1, stages=2,
    ways=4, tall=1,
):  # fmt: skip
    x = random.standard_normal(columns, "float32") * numpy.float32(30)
    norm = random.standard_normal(columns, "float32")
    eps = 1e-6
    h = x.astype(float)
    rms = numpy.sqrt((h * h).mean() + eps)
    if normed:
        h = h * norm / rms
    name = matrices[0].block.name
    record = quant.load(name).STREAM
    # rounding changes an activation by 1 / (2 * 8127) of its group's largest at most; in standard deviations
    steps = numpy.abs(h).reshape(-1, 32).max(axis=1).repeat(32) / 8127 / numpy.sqrt(12)
    if record.rounded:  # to these very numbers, but where another last bit of the root decides, one in hundreds
        steps = 2.0**-11 * numpy.abs(h) / numpy.sqrt(12) * (0.05 if normed else 0.001)
        h = rounded(h)
    products = [m.values @ h + (m.bias if m.biased else 0) for m in matrices]
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
    args += NOTHING * (3 - len(matrices)) + [mode + flags, act, scale, splits, runs, stages, ways, tall]
    largest = min(numpy.abs(w).max() for w in wanted)  # each result is compared with its own largest value
    return Case(
        label, f"linear_stream_{name}", grid or (tiles(matrices) * splits + WARPS - 1) // WARPS, args,
        {10 + 6 * i: w for i, w in enumerate(wanted)},
        shared=record.shared_bytes(columns, splits, runs, stages, ways, tall), tolerance=3 * noise / largest + 1e-6,
    )  # fmt: skip


def cases():
    """Every format, with segments that end early and begin anywhere; the rest with those that are unpacked fastest."""
    random = numpy.random.default_rng(8)
    for number, block in enumerate(fast()):
        size = max(block.elements, 32)
        columns = 1280 + size % 256
        yield case("19", [Matrix(block, 19, columns, random)], columns, random, splits=2, ways=(1, 4, 16, 8, 32)[number % 5])
    first, other = (next(b for b in fast() if b.elements == size) for size in (32, 256))
    yield case("small", [Matrix(first, 1, 32, random)], 32, random, splits=8)
    three = [Matrix(other, rows, 512, random, biased=rows == 17) for rows in (17, 15, 16)]
    yield case("three", three, 512, random, normed=True)
    pair = [Matrix(first, 40, 544, random), Matrix(first, 40, 544, random, biased=True)]
    for splits in (1, 4):
        yield case(f"gated-{splits}", pair, 544, random, mode=2, act=splits // 4, splits=splits, normed=True)
    yield case("late", pair[:1], 544, random, flags=4)
    yield case("beside", pair[:1], 544, random, flags=8)
    records = {block: quant.load(block.name).STREAM for block in fast()}
    for block in (first, *(b for b, record in records.items() if record.piece or record.bits or b.name in ("F16", "BF16"))):
        yield case("wide", [Matrix(block, 3, 4864, random)], 4864, random, splits=8, normed=True)  # activations in two rounds
    for block, record in records.items():
        if record.bits:
            many = [Matrix(block, 50, 2304, random, biased=True)]
            yield case("tall", many, 2304, random, mode=1, splits=4, runs=4, stages=2, tall=2, grid=1, scale=0.5)
    yield case("wider", [Matrix(first, 2, 8736, random)], 8736, random, splits=8, normed=True)  # in five
    some = [Matrix(first, 300, 224, random)]
    yield case("tall", some, 224, random, splits=8, runs=1, stages=1, tall=8, grid=1)  # 19 units, in 8, 8 and 3
    some = [Matrix(first, 50, 2304, random, biased=True)]
    for splits in (1, 2, 4, 8):
        turns = {"grid": 1 if splits == 2 else None, "runs": (4, 2)[splits % 2] if splits < 4 else 1, "stages": 1 + splits % 2}
        yield case(f"add-{splits}", some, 2304, random, mode=1, splits=splits, scale=0.5, **turns)
