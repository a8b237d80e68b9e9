import numpy
from blocks import random_blocks
from run import Case

from reflex import quant
from reflex.ops import embed as op
from reflex.quant.types import TYPES

VOCABULARY = 5


def case(block, columns, ids, scale, random, **given):
    data = random_blocks(block, VOCABULARY * columns // block.elements, random).reshape(-1)
    table = quant.decode(block.name, data).reshape(VOCABULARY, columns)
    wanted = op.reference(table, scale=scale, ids=ids)
    out = numpy.full(wanted.shape, numpy.nan, "float32")
    args = [data, numpy.array(ids, "int32"), out, columns, scale]
    grid = ((columns + 255) // 256, len(ids))
    return Case(f"{len(ids)}x{columns}", f"embed_{block.name}", grid, args, {2: wanted}, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for block in TYPES.values():
        columns = 257 if block.elements == 1 else 288 // block.elements * block.elements
        yield case(block, columns, [4, 0, 2], 2.5, random)
        if block.elements == 1:
            yield case(block, 31, [3], 1.0, random)


def bench():
    random = numpy.random.default_rng(1)
    for block in TYPES.values():
        for rows in (1, 512):
            made = case(block, 2048, [i % VOCABULARY for i in range(rows)], 1.0, random, emulate=False)
            made.bytes = rows * 2048 * 4
            yield made
