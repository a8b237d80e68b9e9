import numpy
from run import Case

from reflex import quant
from reflex.quant.types import TYPES

from .linear_plain import SLACK, weights_of


def case(block, count, random, emulate=True, wide=0):
    data, _ = weights_of(block, 1, count, random)
    if block.name in ("BF16", "F32", "F64"):  # any bits but those of infinities: what float16 cannot hold becomes one
        data[block.nbytes - 1 : -SLACK : block.nbytes] &= 0xBF
    values = quant.decode(block.name, data[:-SLACK])
    with numpy.errstate(over="ignore"):
        wanted = values.astype("f4" if wide else "f2").view("u4")
    out = numpy.full(len(wanted) + 4, 0x7F7F7F7F, "u4")
    wanted = numpy.concatenate([wanted, out[-4:]])
    args = [data, out, count, wide]
    label = f"{count} wide" if wide else str(count)
    return Case(label, f"expand_{block.name}", -(-count // 2048), args, {1: wanted}, tolerance=0, emulate=emulate)


def cases():
    random = numpy.random.default_rng(31)
    for block in TYPES.values():
        for wide in (0, 1):
            yield case(block, -(-136 // block.elements) * block.elements, random, wide=wide)


def bench():
    random = numpy.random.default_rng(32)
    for block in TYPES.values():
        if block.elements > 1:
            one = case(block, 1 << 24, random, emulate=False)
            one.bytes = (1 << 24) // block.elements * block.nbytes + (1 << 25)
            yield one
