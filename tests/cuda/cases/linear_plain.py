import numpy
from run import Case

from reflex import quant
from reflex.quant.types import TYPES

from .halves import halves, stored

SLACK = 256  # readable bytes behind every buffer


def weights_of(block, rows, columns, random):
    """(bytes, float32 [rows, columns]): random blocks with scales that give weights of moderate size."""
    count = rows * columns // block.elements
    data = random.integers(0, 256, (count, block.nbytes), dtype="u1")
    for offset, code in SCALES.get(block.name, ()):
        size = numpy.dtype(code).itemsize
        small = random.uniform(0.001, 0.01, count) * random.choice([-1, 1], count)
        values = random.integers(-9, 9, count) if code[1] == "i" else small
        data[:, offset : offset + size] = values.astype(code).view("u1").reshape(count, size)
    if block.name == "IQ1_M":  # the half scale is spread over the highest 4 bits of four words
        data[:, 49:56:2] = data[:, 49:56:2] & 15 | numpy.array([0x50, 0x10, 0x40, 0x20], "u1")
    if block.name == "BF16":  # about 0.01
        data[:, 1] = data[:, 1] & 0x80 | 0x3C
    if block.name == "MXFP4":
        data[:, 0] = random.integers(118, 124, count)
    if block.name == "NVFP4":
        data[:, :4] = random.integers(8, 40, (count, 4))
    values = quant.decode(block.name, data.reshape(-1)).reshape(rows, columns)
    return numpy.concatenate([data.reshape(-1), numpy.zeros(SLACK, "u1")]), values


HALF_AT_0 = ["Q4_0", "Q5_0", "Q8_0", "Q8_1", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]
HALF_AT_0 += ["IQ4_NL", "IQ4_XS", "Q1_0", "F16"]
SCALES = {name: [(0, "<f2")] for name in HALF_AT_0}
SCALES |= {name: [(0, "<f2"), (2, "<f2")] for name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")}
SCALES |= {"Q2_K": [(80, "<f2"), (82, "<f2")], "Q3_K": [(108, "<f2")], "Q6_K": [(208, "<f2")], "Q8_K": [(0, "<f4")]}
SCALES |= {"TQ1_0": [(52, "<f2")], "TQ2_0": [(64, "<f2")], "F32": [(0, "<f4")], "F64": [(0, "<f8")]}
SCALES |= {"I8": [(0, "|i1")], "I16": [(0, "<i2")], "I32": [(0, "<i4")], "I64": [(0, "<i8")]}


def case(block, tokens, rows, columns, mode, biased, random, emulate=True):
    data, w = weights_of(block, rows, columns, random)
    x = random.standard_normal((tokens, columns), "f4")
    xh, factor = halves(x, None, 0)
    bias = random.standard_normal(rows, "f4")
    stride = rows + 3
    out = random.standard_normal((tokens, stride), "f4")
    out[:, : 0 if mode else rows] = numpy.nan
    y = (xh.astype("f8")[:, :columns] * factor[:, None].astype("f8")) @ w.T.astype("f8") + biased * bias
    scale = 0.5
    wanted = out.copy()
    wanted[:, :rows] = y if mode == 0 else wanted[:, :rows] + scale * y
    args = [stored(xh), factor, tokens, columns, data, rows, bias, int(biased), out, stride, mode, scale]
    label, name = f"{tokens}x{rows}x{columns}", f"linear_plain_{block.name}"
    return Case(label, name, (rows + 3) // 4, args, {8: wanted}, tolerance=2e-6, emulate=emulate)


def plain():
    return [block for block in TYPES.values() if block.elements == 1 or not hasattr(quant.load(block.name), "FRAGMENT")]


def cases():
    random = numpy.random.default_rng(11)
    for i, block in enumerate(plain()):
        columns = max(block.elements, 64 if i % 2 else 36) if block.elements == 1 else block.elements * (1 + i % 2)
        yield case(block, 1 + i * 7 % 11, 5, columns, i % 2, i % 3 == 0, random)
    yield case(TYPES[0], 3, 2, 131, 0, True, random)


def bench():
    random = numpy.random.default_rng(12)
    for block in plain():
        if block.elements > 1:
            one = case(block, 8, 4096, 1024, 0, False, random, emulate=False)
            one.bytes = 4096 * 1024 // block.elements * block.nbytes
            yield one
