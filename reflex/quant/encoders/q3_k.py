"""Q3_K: scales of 16 by search, of six bits with a sign; levels again from the scales as they are kept."""

from . import search
from .packing import in_turn, planes, sixbit_scales

IMPORTANCE = "twice the block"


def encoder(v, weighted):
    scale_of, kept = (_by_importance if weighted else _by_size)(v)
    again, write_scales = search.again(v, 16, -4, 3), sixbit_scales(v, 110, 96)
    pack = in_turn(v, planes(v, 110, 0, 32, 32, 1, shift=2), planes(v, 110, 32, 64, 32, 2))

    @v.function
    def encode(x, w, out, room):
        levels, scales, sums, whole = room, v.place(room, 256), v.place(room, 272), v.place(room, 288)
        for j in range(16):
            here, weights = v.place(x, 16 * j), v.place(w, 16 * j)
            if weighted:
                total = v.floats(0)
                for i in range(16):
                    total += v.load(weights, i)
                v.store(sums, j, total)
            v.store(scales, j, scale_of(here, weights, v.place(levels, 16 * j)))
        d = kept(scales, sums, whole)
        v.put_half(out + 108, 110, d)
        d = v.through_half(d)
        write_scales(whole, out)
        for j in range(16):
            again(v.place(x, 16 * j), v.place(levels, 16 * j), d * (v.load_ints(whole, j) - 32), v.floats(0))
        pack(levels, out)

    return encode


def _by_importance(v):
    return search.symmetric(v, 16, 4, True), search.symmetric(v, 16, 32, True)


def _by_size(v):
    """The search of a group, and function (scales, sums, whole) -> scale of whole numbers: that of the largest size becomes -32."""
    from numpy import float32 as f

    fit, largest_of, lowest = search.descent(v, 16, 4), search.extreme(v, 16), f(-32)

    @v.function
    def scale_of(x, w, levels):
        return fit(x, levels)

    @v.function
    def kept(scales, sums, whole):
        extreme = largest_of(scales)[1]
        empty, inverse = extreme == 0, lowest / extreme
        for j in range(16):
            level = (v.nearest(inverse * v.load(scales, j)) << 24) >> 24
            v.store(whole, j, v.select(empty, 0, v.clamped(level, -32, 31) + 32))
        return v.select(empty, 0, 1 / inverse)

    return scale_of, kept
