import numpy
from blocks import random_blocks
from run import Case

from reflex import quant
from reflex.ops import add_position as op
from reflex.quant.types import TYPES

CONTEXT = 5


def case(block, columns, positions, random, **given):
    data = random_blocks(block, CONTEXT * columns // block.elements, random).reshape(-1)
    table = quant.decode(block.name, data).reshape(CONTEXT, columns).astype("float32")
    x = random.standard_normal((len(positions), columns), "float32")
    wanted = {2: op.reference(x, table, positions=positions)}
    args = [data, numpy.array(positions, "int32"), x, columns]
    grid = ((columns + 255) // 256, len(positions))
    label = f"{len(positions)}x{columns}"
    return Case(label, f"add_position_{block.name}", grid, args, wanted, tolerance=op.TOLERANCE, **given)


def cases():
    random = numpy.random.default_rng(1)
    for block in TYPES.values():
        columns = 257 if block.elements == 1 else 288 // block.elements * block.elements
        yield case(block, columns, [4, 0, 2], random)
        if block.elements == 1:
            yield case(block, 31, [3], random)


def bench():
    random = numpy.random.default_rng(1)
    for block in TYPES.values():
        for rows in (1, 512):
            made = case(block, 2048, [i % CONTEXT for i in range(rows)], random, emulate=False)
            made.bytes = rows * 2048 * 4
            yield made
