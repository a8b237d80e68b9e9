"""IQ2_S: sixteen groups of 16 with two points of 8 each and a sign for every value."""

from .. import grids
from . import lattice

IMPORTANCE, NEEDED = "twice the block", False
LATTICE = lattice.Lattice(82, grids.iq2_s, 8, 3, 1, 16, False, 9, 0.1, 1e-8, fudge=0.9875)
tables = LATTICE.tables


def encoder(v, weighted):
    return lattice.encoder(v, weighted, LATTICE, writer, weigher)


def writer(v):
    @v.function
    def write(numbers, signs, scales, out):
        for i in range(32):
            v.put_byte(out + 2 + i, 82, v.load_ints(numbers, i))
            v.put_byte(out + 34 + i, 82, v.load_ints(signs, i))
        for i in range(8):
            high = v.load_ints(numbers, 4 * i) >> 8
            for k in range(1, 4):
                high |= (v.load_ints(numbers, 4 * i + k) >> 8) << (2 * k)
            v.put_byte(out + 66 + i, 82, high)
            v.put_byte(out + 74 + i, 82, v.load_ints(scales, 2 * i) | (v.load_ints(scales, 2 * i + 1) << 4))

    return write


def weigher(v):
    """A quarter of twice the mean square is added to the squares."""
    from numpy import float32 as f

    quarter = f(0.25)

    @v.function
    def plain_weights(x, w):
        squares = v.floats(0)
        for i in range(256):
            squares += v.load(x, i) * v.load(x, i)
        mean = squares * 2 / 256 * quarter
        for i in range(256):
            v.store(w, i, mean + v.load(x, i) * v.load(x, i))

    return plain_weights
