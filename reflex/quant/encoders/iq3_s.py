"""IQ3_S: eight groups of 32 with eight points of 4 each and a sign for every value."""

from .. import grids
from . import lattice

IMPORTANCE, NEEDED = "twice the block", False
LATTICE = lattice.Lattice(110, grids.iq3_s, 4, 8, 3, 32, False, 9, 0.2, 0, fudge=1.033, all_again=True)
tables = LATTICE.tables


def encoder(v, weighted):
    return lattice.encoder(v, weighted, LATTICE, writer, lattice.squares)


def writer(v):
    @v.function
    def write(numbers, signs, scales, out):
        for i in range(64):
            v.put_byte(out + 2 + i, 110, v.load_ints(numbers, i))
        for i in range(8):
            high = v.load_ints(numbers, 8 * i) >> 8
            for k in range(1, 8):
                high |= (v.load_ints(numbers, 8 * i + k) >> 8) << k
            v.put_byte(out + 66 + i, 110, high)
        for i in range(32):
            v.put_byte(out + 74 + i, 110, v.load_ints(signs, i))
        for i in range(4):
            v.put_byte(out + 106 + i, 110, v.load_ints(scales, 2 * i) | (v.load_ints(scales, 2 * i + 1) << 4))

    return write
