"""Q4_1: the least value becomes 0 and the largest 15; with importance, a search."""

from . import search
from .affine import WEIGHTED
from .packing import in_turn, planes

IMPORTANCE = "row"


def encoder(v, weighted):
    return shifted(v, weighted, 15, 20, planes(v, 20, 4, 16, 16, 4))


def shifted(v, weighted, top, nbytes, *packers):
    """Blocks of 32 with a scale at byte 0 and the minimum behind it."""
    from numpy import float32 as f

    fit, pack, limit, half = search.affine(v, 32, top, *WEIGHTED, guarded=True), in_turn(v, *packers), f(top), f(0.5)

    @v.function
    def plain(x, levels):
        low = high = v.load(x, 0)
        for i in range(1, 32):
            value = v.load(x, i)
            low, high = v.least(value, low), v.most(value, high)
        scale = (high - low) / limit
        inverse = v.select(scale != 0, 1 / scale, 0)
        for i in range(32):
            level = (v.ints((v.load(x, i) - low) * inverse + half) << 24) >> 24
            v.store(levels, i, v.least(v.ints(top), level))
        return scale, low

    @v.function
    def encode(x, w, out, room):
        if weighted:
            scale, low = fit(x, w, room, v.place(room, 32))
            low = -low
        else:
            scale, low = plain(x, room)
        v.put_half(out, nbytes, scale)
        v.put_half(out + 2, nbytes, low)
        pack(room, out)

    return encode
