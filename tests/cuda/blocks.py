"""Random weights in any block format, for cases."""

import numpy

from reflex import quant


def random_blocks(block, count, random):
    """uint8[count, bytes per block]: blocks whose largest value is of moderate size (random bytes may also spell infinities)."""
    blocks = random.integers(0, 256, (8 * min(count, 500) + 64, block.nbytes), "uint8")
    with numpy.errstate(all="ignore"):
        largest = numpy.abs(quant.load(block.name).decode(blocks)).max(axis=1)
    usable = blocks[(largest > 1e-3) & (largest < 1e3)]
    if not len(usable):  # wide integers
        usable = blocks[numpy.isfinite(largest)]
    return usable[random.integers(0, len(usable), count)]
