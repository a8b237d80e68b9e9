"""IQ4_XS: eight groups of 32 as IQ4_NL has them, their scales of six bits with a sign; levels again from the scales as kept."""

from . import search, table
from .packing import planes

IMPORTANCE = "twice the block"


def encoder(v, weighted):
    from numpy import float32 as f

    scale_of, levels_of, largest_of = table.search(v, weighted), table.nearest(v, 32), search.extreme(v, 8)
    pack, most = planes(v, 136, 8, 128, 16, 4), f(32)

    @v.function
    def encode(x, w, out, room):
        scales = v.place(room, 256)
        for j in range(8):
            v.store(scales, j, scale_of(v.place(x, 32 * j), v.place(w, 32 * j)))
        unit = -largest_of(scales)[1] / most
        v.put_half(out, 136, unit)
        inverse, low, high = v.select(unit != 0, 1 / unit, 0), v.ints(0), v.ints(0)
        for j in range(8):
            scale = v.clamped(v.nearest(inverse * v.load(scales, j)), -32, 31)
            whole = unit * scale
            levels_of(v.place(x, 32 * j), v.place(room, 32 * j), v.select(whole != 0, 1 / whole, 0))
            low |= ((scale + 32) & 15) << (4 * j)
            high |= ((scale + 32) >> 4) << (2 * j)
        v.put_two(out + 2, 136, high)
        v.put_four(out + 4, 136, low)
        pack(room, out)

    return encode
