"""What the super-blocks with scales and minimums share: groups with one of each by search, kept as whole numbers of few bits times
a half float; then levels again from what is kept."""

from functools import cache

from . import search
from .packing import in_turn

WEIGHTED = (-0.9, 0.05, 36)  # the scales that are tried where importance is known: first, step, number


class Layout:
    """A format: `groups` of `count` values with levels up to `top`, scales up to `most`, the half floats of scale and minimum
    at byte `at` and behind; `trials`: as WEIGHTED, without importance; `size_only`: weights are sizes, errors absolute."""

    def __init__(self, nbytes, at, groups, count, top, most, trials, size_only=False):
        self.nbytes = nbytes
        self.at = at
        self.groups = groups
        self.count = count
        self.top = top
        self.most = most
        self.trials = trials
        self.size_only = size_only


def encoder(v, weighted, layout, write_scales, *packers):
    """Function (x, w, out, room)."""
    groups, count, nbytes, at = layout.groups, layout.count, layout.nbytes, layout.at
    fit, again, pack = _fit(v, weighted, layout), search.again(v, count, 0, layout.top), in_turn(v, *packers)
    kept = (by_importance if weighted else by_size)(v, groups, layout.most)
    weigh, sums_of = _sizes(v, count, layout.size_only), _sums(v, count)

    @v.function
    def encode(x, w, out, room):
        levels, scales, lows = room, v.place(room, 256), v.place(room, 272)
        sums, whole, spare = v.place(room, 288), v.place(room, 304), v.place(room, 336)
        for j in range(groups):
            here, weights = v.place(x, count * j), v.place(w, count * j)
            if weighted:
                v.store(sums, j, sums_of(weights))
            else:
                weigh(here, weights)
            scale, low = fit(here, weights, v.place(levels, count * j), spare)
            v.store(scales, j, scale)
            v.store(lows, j, low)
        d, m = kept(scales, sums, whole), kept(lows, sums, v.place(whole, groups))
        v.put_half(out + at, nbytes, d)
        v.put_half(out + at + 2, nbytes, m)
        d, m = v.through_half(d), v.through_half(m)
        write_scales(whole, out)
        for j in range(groups):
            unit, low = d * v.load_ints(whole, j), m * v.load_ints(whole, groups + j)
            again(v.place(x, count * j), v.place(levels, count * j), unit, low)
        pack(levels, out)

    return encode


def _fit(v, weighted, layout):
    if weighted:
        return search.affine(v, layout.count, layout.top, *WEIGHTED, guarded=True)
    return search.affine(v, layout.count, layout.top, *layout.trials, absolute=layout.size_only)


@cache
def _sums(v, count):
    @v.function
    def total(w):
        result = v.floats(0)
        for i in range(count):
            result += v.load(w, i)
        return result

    return total


@cache
def _sizes(v, count, size_only):
    """Function (x, w): weights where importance says nothing, the sizes of the values and the root of their mean square."""

    @v.function
    def weigh(x, w):
        squares = v.floats(0)
        if not size_only:
            for i in range(count):
                squares += v.load(x, i) * v.load(x, i)
        mean = v.sqrt(squares / count)
        for i in range(count):
            v.store(w, i, mean + v.size(v.load(x, i)))

    return weigh


@cache
def by_size(v, groups, most):
    """Function (values, sums, whole) -> scale of whole numbers: the largest value becomes the most."""
    from numpy import float32 as f

    top = f(most)

    @v.function
    def kept(values, sums, whole):
        largest = v.floats(0)
        for j in range(groups):
            largest = v.most(v.load(values, j), largest)
        inverse = v.select(largest > 0, top / largest, 0)
        for j in range(groups):
            v.store(whole, j, v.least(v.ints(most), v.nearest(inverse * v.load(values, j)) & 255))
        return largest / top

    return kept


@cache
def by_importance(v, groups, most):
    """The same by search, groups weighted by the sums of their weights."""
    fit = search.positive(v, groups, most)

    @v.function
    def kept(values, sums, whole):
        scale = fit(values, sums, whole)
        for j in range(groups):
            v.store(whole, j, v.least(v.ints(most), v.load_ints(whole, j)))
        return scale

    return kept
