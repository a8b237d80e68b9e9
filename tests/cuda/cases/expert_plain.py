import numpy
from run import Case

from reflex.kernels.cuda import expert_plain
from reflex.kernels.cuda.export import KERNELS
from reflex.quant.types import TYPES

from .expert_order import arranged, routed
from .halves import halves, stored
from .linear_plain import weights_of

TOKENS = expert_plain.TOKENS
EXPERTS = 5
BLOCKS = [block for block in TYPES.values() if f"expert_plain_{block.name}" in KERNELS]


def case(block, tokens, used, rows, columns, apart, biased, random, emulate=True, experts=EXPERTS, skipped=0):
    """skipped: rows of each expert's matrix before the part that is used."""
    whole = rows + skipped
    data, w = weights_of(block, experts * whole, columns, random)
    w = w.reshape(experts, whole, columns)
    chosen, _ = routed(tokens, experts, used, random)
    order, tiles = arranged(chosen, experts, TOKENS)
    each = 1 if apart else used
    x = random.standard_normal((tokens * used // each, columns), "f4")
    xh, factor = halves(x, None, 0)
    bias = random.standard_normal((experts, whole), "f4")
    h = xh.astype("f8")[:, :columns] * factor[:, None]
    y = numpy.stack([w[e, skipped:] @ h[p // each] + biased * bias[e, skipped:] for p, e in enumerate(chosen.reshape(-1))])
    line = columns // block.elements * block.nbytes
    out_stride = rows + 3
    out = numpy.full((tokens * used, out_stride), numpy.nan, "f4")
    wanted = out.copy()
    wanted[:, :rows] = y
    args = [
        stored(xh), factor, each, columns, order, tiles, data[skipped * line :], whole * line, rows, bias.reshape(-1)[skipped:],
        int(biased), whole, out, out_stride, 0,
    ]  # fmt: skip
    return Compared(f"{tokens}x{used}x{rows}x{columns}", f"expert_plain_{block.name}", (-(-rows // 4), len(tiles)), args,
        {12: wanted}, tolerance=2e-6, emulate=emulate)  # fmt: skip


class Compared(Case):
    """Columns that nobody writes are not compared."""

    def _compare(self, what, found, wanted):
        known = ~numpy.isnan(wanted)
        if not numpy.isnan(found[~known]).all():
            yield f"{self.label}: {what} was written where it should not be"
        yield from super()._compare(what, found[known], wanted[known])


def cases():
    random = numpy.random.default_rng(39)
    for i, block in enumerate(BLOCKS):
        columns = max(block.elements, 64 if i % 2 else 36) if block.elements == 1 else block.elements * (1 + i % 2)
        yield case(block, 1 + i * 3 % 4, 2, 5, columns, i % 2, i % 3 == 0, random, skipped=i % 2)
    yield case(TYPES[0], 12, 2, 2, 131, 0, True, random, experts=3)


def bench():
    random = numpy.random.default_rng(40)
    for block in BLOCKS:
        if block.elements > 1:
            one = case(block, 1, 8, 768, 2048, False, False, random, emulate=False, experts=16)
            one.bytes = 8 * 768 * 2048 // block.elements * block.nbytes
            yield one
