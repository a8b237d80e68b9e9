import numpy
from blocks import random_blocks
from run import Case

from reflex import quant
from reflex.ops import add_position
from reflex.ops import embed as op
from reflex.quant.types import TYPES

VOCABULARY = 5


def case(block, columns, ids, scale, random, adding=False, **given):
    data = random_blocks(block, VOCABULARY * columns // block.elements, random).reshape(-1)
    table = quant.decode(block.name, data).reshape(VOCABULARY, columns)
    wanted, tolerance = op.reference(table, scale=scale, ids=ids), op.TOLERANCE
    out = numpy.full(wanted.shape, numpy.nan, "float32")
    if adding:
        out = random.standard_normal(wanted.shape, "float32")
        wanted, tolerance = add_position.reference(out, table.astype("float32"), positions=ids), add_position.TOLERANCE
    args = [data, numpy.array(ids, "int32"), out, columns, scale, int(adding)]
    grid = ((columns + 255) // 256, len(ids))
    label = f"{len(ids)}x{columns}{'-added' * adding}"
    return Case(label, f"embed_{block.name}", grid, args, {2: wanted}, tolerance=tolerance, **given)


def cases():
    random = numpy.random.default_rng(1)
    for block in TYPES.values():
        columns = 257 if block.elements == 1 else 288 // block.elements * block.elements
        yield case(block, columns, [4, 0, 2], 2.5, random)
        yield case(block, columns, [4, 0, 2], 1.0, random, adding=True)
        if block.elements == 1:
            yield case(block, 31, [3], 1.0, random)


def bench():
    random = numpy.random.default_rng(1)
    for block in TYPES.values():
        for rows in (1, 512):
            made = case(block, 2048, [i % VOCABULARY for i in range(rows)], 1.0, random, emulate=False)
            made.bytes = rows * 2048 * 4
            yield made
