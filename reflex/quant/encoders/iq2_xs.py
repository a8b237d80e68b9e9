"""IQ2_XS: sixteen groups of 16 with two points of 8 each, seven signs behind the number of a point."""

from .. import grids
from . import lattice

IMPORTANCE, NEEDED = "block", True
LATTICE = lattice.Lattice(74, grids.iq2_xs, 8, 3, 2, 16, True, 9, 0.1, 1e-15)
tables = LATTICE.tables


def encoder(v, weighted):
    return lattice.encoder(v, True, LATTICE, writer)


def writer(v):
    @v.function
    def write(numbers, signs, scales, out):
        for i in range(32):
            v.put_two(out + 2 + 2 * i, 74, v.load_ints(numbers, i) | (v.load_ints(signs, i) << 9))
        for i in range(8):
            v.put_byte(out + 66 + i, 74, v.load_ints(scales, 2 * i) | (v.load_ints(scales, 2 * i + 1) << 4))

    return write
