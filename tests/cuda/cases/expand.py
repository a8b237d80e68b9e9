import numpy
from run import Case

from reflex import quant
from reflex.quant.types import TYPES, by_name

from .linear_plain import SLACK, weights_of

VALUES = 16384  # of a block of threads


class Expanded(Case):
    """Words that hold float16 or float32 numbers; at least the last four must be left alone."""

    def _compare(self, what, found, wanted):
        kind = "f4" if self.args[3] == 1 else "f2"
        if self.tolerance and (found[-4:] != wanted[-4:]).any():
            yield f"{self.label}: {what} is written behind its end"
        if self.tolerance:
            found, wanted = found[:-4].view(kind), wanted[:-4].view(kind)
        yield from super()._compare(what, found, wanted)


def case(block, count, random, emulate=True, wide=0):
    data, _ = weights_of(block, 1, count, random)
    if block.name in ("BF16", "F32", "F64"):  # any bits but those of infinities: what float16 cannot hold becomes one
        data[block.nbytes - 1 : -SLACK : block.nbytes] &= 0xBF
    values = quant.decode(block.name, data[:-SLACK])
    if wide == 2:
        values[:] = numpy.clip(values, -65000, 65000)
        data[: -SLACK] = values.reshape(-1).view("u1")
        values -= values.astype("f2").astype("f4")
    with numpy.errstate(over="ignore"):
        wanted = values.astype("f4" if wide == 1 else "f2").view("u4")
    out = numpy.full(len(wanted) + 4, 0x7F7F7F7F, "u4")
    wanted = numpy.concatenate([wanted, out[-4:]])
    args = [data, out, count, wide]
    label = f"{count}{('', ' wide', ' rest')[wide]}"
    # fragments add in one rounding what `decode` does in two
    tolerance = 0 if block.elements == 1 or not hasattr(quant.load(block.name), "FRAGMENT") else 3e-7 if wide else 2.0**-11
    return Expanded(label, f"expand_{block.name}", -(-count // VALUES), args, {1: wanted}, tolerance=tolerance, emulate=emulate)


def cases():
    random = numpy.random.default_rng(31)
    for block in TYPES.values():
        for wide, count in ((0, 136), (1, 392)):
            yield case(block, -(-count // block.elements) * block.elements, random, wide=wide)
    yield case(by_name("F32"), 264, random, wide=2)


def bench():
    random = numpy.random.default_rng(32)
    for block in TYPES.values():
        if block.elements > 1:
            one = case(block, 1 << 24, random, emulate=False)
            one.bytes = (1 << 24) // block.elements * block.nbytes + (1 << 25)
            yield one
