"""Q1_0: the mean size, and a sign for each value."""

from .packing import planes

IMPORTANCE = None


def encoder(v, weighted):
    from numpy import float32 as f

    pack, count = planes(v, 18, 2, 16, 1, 1), f(128)

    @v.function
    def encode(x, w, out, room):
        total = v.floats(0)
        for i in range(128):
            total += v.size(v.load(x, i))
            v.store(room, i, v.select(v.load(x, i) >= 0, v.ints(1), v.ints(0)))
        v.put_half(out, 18, total / count)
        pack(room, out)

    return encode
