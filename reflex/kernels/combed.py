"""Products of weight rows with codes in the combed order (quant/lanes.py), for processors that permute bytes; see dot.py.

A row's group is one integer product for each 16 weights. With few tokens two rows are read side by side: registers of 64 bytes hold
indices of both, and activations are loaded once. With one, what a format looks up of a group is looked up while the products of
the group before are added: a processor in which much waits for one group's codes has no room for the next one's.
"""

from ..quant.lanes import COMBED
from .dot import CODES, FEW, LESS, QUANTIZED_GROUP, SCALES, SUMS, ask_ahead
from .intrinsics import i64

LANES = 16
UNITS = 4
BESIDE = 2  # rows at once with few tokens


def _add(v, group, x, sums):
    """sums[row][t] += scale x codes . x[t]; codes count 64 less than they say."""
    b, size = v.b, len(x)
    ints = [less for _ in sums for less in [v.load(v.at(at, LESS), v.ints16) for at in x]]
    for k in range(UNITS):
        values = [v.load(v.at(at, CODES[COMBED] + 64 * k), v.bytes64) for at in x]
        products = [(code, value) for code in group.codes(k, group.parts) for value in values]
        ints = [v.dot_bytes(product, into=total) for product, total in zip(products, ints, strict=True)]
    for t, at in enumerate(x):
        if group.minimums:
            total = v.load(v.at(at, SUMS), group.scales[0].type)
            for minimum, accumulators in zip(group.minimums, sums, strict=True):
                b.store(b.fadd(b.load(accumulators[t]), b.fmul(minimum, total)), accumulators[t])
        scale = v.load(v.at(at, SCALES), group.scales[0].type)
        for r, accumulators in enumerate(sums):
            total = v.signed_floats(ints[r * size + t])
            b.store(v.fma(total, b.fmul(group.scales[r], scale), b.load(accumulators[t])), accumulators[t])


def combed_rows(record, v, tile):
    """Rows of `groups` groups of 256, of which there is at least one."""
    b, size = v.b, record.group_bytes
    beside, ahead = BESIDE if tile.tokens <= FEW else 1, tile.tokens == 1
    start = lambda r: b.gep(tile.weights, [b.mul(r, tile.row_bytes)])  # noqa: E731
    if ahead:
        first = record.combed(v, [start(r) for r in tile.numbers(v.const(i64, 0), beside)])
        cells = [[v.cell(value) for value in values] for values in (first.scales, *first.parts, first.minimums or [])]

    def read(pointers, following, last):
        """Groups at pointers; those that come after them are looked up."""
        if not ahead:
            return record.combed(v, pointers)
        after = [b.select(last, f, v.at(p, size)) for p, f in zip(pointers, following, strict=True)]
        group = record.combed(v, after)
        before = [[b.load(cell) for cell in own] for own in cells]
        for own, values in zip(cells, (group.scales, *group.parts, group.minimums or []), strict=True):
            for cell, value in zip(own, values, strict=True):
                b.store(value, cell)
        group.scales, *group.parts, group.minimums = before
        return group

    def rows(numbers, following, sums):
        starts, following = [start(r) for r in numbers], [start(r) for r in following]
        with v.loop(tile.groups) as g:
            pointers = [b.gep(p, [b.mul(g, v.const(i64, size))]) for p in starts]
            x = [b.gep(q, [b.mul(g, v.const(i64, QUANTIZED_GROUP))]) for q in tile.x]
            both = b.gep(starts[0], [b.mul(g, v.const(i64, beside * size))])  # one stream: two take memory twice as long
            ask_ahead(v, both, beside * size, tile.tokens)
            last = b.icmp_signed(">=", b.add(g, v.const(i64, 1)), tile.groups)
            _add(v, read(pointers, following, last), x, sums)

    tile.run(LANES, rows, beside)
