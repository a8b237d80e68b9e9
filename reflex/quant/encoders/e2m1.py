"""The levels of four bits that MXFP4 and NVFP4 share: a sign and one of eight sizes, which are kept doubled."""

from functools import cache

SIZES = (0, 1, 2, 3, 4, 6, 8, 12)


@cache
def nearest(v, count):
    """Function (x, levels, scale): places 0 to 7 of the sizes nearest to x / scale, 8 more for negative ones. The smaller of two
    as near; nothing has no sign."""
    from numpy import float32 as f

    sizes = [f(size) for size in SIZES]

    def chain(k):
        size = sizes[k]
        if k == 0:

            @v.function
            def first(value, scale):
                return value, v.ints(0)

            return first
        before = chain(k - 1)

        @v.function
        def later(value, scale):
            error, place = before(value, scale)
            own = v.size(size * scale - value)
            better = own < error
            return v.select(better, own, error), v.select(better, k, place)

        return later

    last = chain(len(SIZES) - 1)

    @v.function
    def levels_of(x, levels, scale):
        for i in range(count):
            value = v.load(x, i)
            place = last(v.size(value), scale)[1]
            v.store(levels, i, v.select((value < 0) & (place != 0), place + 8, place))

    return levels_of
