"""TQ2_0: the largest size becomes 1, everything the nearest of -1, 0 and 1."""

from functools import cache

from . import search
from .packing import planes

IMPORTANCE = None


@cache
def trits(v, at, nbytes):
    """Function (x, levels, out): levels 0, 1, 2 of 256 values; the half float of their largest size goes to byte `at`."""
    largest_of = search.largest_size(v, 256)

    @v.function
    def levels_of(x, levels, out):
        largest = largest_of(x)
        v.put_half(out + at, nbytes, largest)
        inverse = v.select(largest != 0, 1 / largest, 0)
        for i in range(256):
            v.store(levels, i, v.ints(v.rounded(v.load(x, i) * inverse)) + 1)

    return levels_of


def encoder(v, weighted):
    levels_of, pack = trits(v, 64, 66), planes(v, 66, 0, 64, 32, 2)

    @v.function
    def encode(x, w, out, room):
        levels_of(x, room, out)
        pack(room, out)

    return encode
