"""Q4_0: the value of the largest size becomes -8; with importance, a search."""

from . import search
from .packing import in_turn, planes

IMPORTANCE = "row"


def encoder(v, weighted):
    return signed(v, weighted, 8, 18, planes(v, 18, 2, 16, 16, 4))


def signed(v, weighted, top, nbytes, *packers):
    """Blocks of 32 with one scale at byte 0 and levels that stand for level - top."""
    from numpy import float32 as f

    first, half = f(-top), f(top + 0.5)
    scale_of, largest_of = search.symmetric(v, 32, top, True), search.extreme(v, 32)
    pack = in_turn(v, *packers)

    @v.function
    def plain(x, levels):
        scale = largest_of(x)[1] / first
        inverse = v.select(scale != 0, 1 / scale, 0)
        for i in range(32):
            level = (v.ints(v.load(x, i) * inverse + half) << 24) >> 24
            v.store(levels, i, v.least(v.ints(2 * top - 1), level))
        return scale

    @v.function
    def encode(x, w, out, room):
        v.put_half(out, nbytes, scale_of(x, w, room) if weighted else plain(x, room))
        pack(room, out)

    return encode
