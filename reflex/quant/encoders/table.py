"""Levels that are places in a table of sixteen numbers (iq4_nl.py): the nearest one, and the search for a scale."""

from functools import cache

from ..iq4_nl import LEVELS
from .search import EPSILON, extreme

VALUES = [level - 256 if level > 127 else level for level in LEVELS]
TRIALS = 7  # scales on either side


@cache
def _value(v, place):
    """Function (value) -> the number of the table nearest to it, or its place, as floats. Upper of two as near."""
    from numpy import float32 as f

    numbers = [f(k if place else number) for k, number in enumerate(VALUES)]

    def chain(k):
        number = numbers[k]
        if k == 0:

            @v.function
            def first(twice):
                return v.floats(number)

            return first
        before, middle = chain(k - 1), f(VALUES[k - 1] + VALUES[k])

        @v.function
        def later(twice):
            return v.select(twice >= middle, number, before(twice))

        return later

    last = chain(15)

    @v.function
    def value_of(value):
        return last(value + value)

    return value_of


@cache
def nearest(v, count):
    """Function (x, levels, inverse scale)."""
    place_of = _value(v, True)

    @v.function
    def levels_of(x, levels, inverse):
        for i in range(count):
            v.store(levels, i, v.ints(place_of(inverse * v.load(x, i))))

    return levels_of


@cache
def search(v, weighted):
    """Function (x, w) -> scale of 32 values: of the scales that make the value of the largest size about the first of the
    table, the one that fits best."""
    from numpy import float32 as f

    value_of, largest_of, epsilon, lowest = _value(v, False), extreme(v, 32), f(EPSILON), f(VALUES[0])

    @v.function
    def sums(x, w, inverse):
        sum_qx, sum_q2 = v.floats(0), v.floats(0)
        for i in range(32):
            value = v.load(x, i)
            number = value_of(inverse * value)
            weight = v.load(w, i) if weighted else value * value
            sum_qx += weight * number * value
            sum_q2 += weight * number * number
        return sum_qx, sum_q2

    @v.function
    def scale_of(x, w):
        largest, value = largest_of(x)
        sum_qx, sum_q2 = sums(x, w, 1 / (-value / lowest))
        scale = v.select(sum_q2 > 0, sum_qx / sum_q2, 0)
        best = scale * sum_qx
        for k in range(-TRIALS, TRIALS + 1):
            sum_qx, sum_q2 = sums(x, w, (v.number(k) + lowest) / value)
            better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
            scale = v.select(better, sum_qx / sum_q2, scale)
            best = v.select(better, scale * sum_qx, best)
        return v.select(largest < epsilon, 0, scale)

    return scale_of
