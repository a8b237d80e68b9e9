"""IQ4_NL: levels from the sixteen of the table; the scale by search about the one that makes the largest size the first level."""

from . import table
from .packing import planes

IMPORTANCE = "twice the block"


def encoder(v, weighted):
    scale_of, levels_of, pack = table.search(v, weighted), table.nearest(v, 32), planes(v, 18, 2, 16, 16, 4)

    @v.function
    def encode(x, w, out, room):
        scale = scale_of(x, w)
        v.put_half(out, 18, scale)
        levels_of(x, room, v.select(scale != 0, 1 / scale, 0))
        pack(room, out)

    return encode
