"""Q6_K: scales of 16 by search, the one of the largest size becomes -128; levels again from the scales as they are kept."""

from . import search
from .packing import in_turn, planes

IMPORTANCE = "as it is"


def encoder(v, weighted):
    from numpy import float32 as f

    scale_of, again = search.symmetric(v, 16, 32, weighted), search.again(v, 16, -32, 31)
    pack = in_turn(v, planes(v, 210, 0, 128, 64, 4), planes(v, 210, 128, 64, 32, 2, shift=4))
    largest_of, epsilon, lowest = search.extreme(v, 16), f(search.EPSILON), f(-128)

    @v.function
    def encode(x, w, out, room):
        levels, scales = room, v.place(room, 256)
        for j in range(16):
            scale = scale_of(v.place(x, 16 * j), v.place(w, 16 * j), v.place(levels, 16 * j))
            v.store(scales, j, scale)
        largest, extreme = largest_of(scales)
        empty, inverse = largest < epsilon, lowest / extreme
        whole = v.select(empty, 0, 1 / inverse)
        v.put_half(out + 208, 210, whole)
        whole = v.through_half(whole)
        for j in range(16):
            scale = v.least(v.ints(127), v.nearest(inverse * v.load(scales, j)))
            scale = v.select(empty, 0, (scale << 24) >> 24)
            v.put_byte(out + 192 + j, 210, scale)
            again(v.place(x, 16 * j), v.place(levels, 16 * j), whole * scale, v.floats(0))
        for i in range(256):
            v.store(levels, i, v.select(empty, 0, v.load_ints(levels, i)))
        pack(levels, out)

    return encode
