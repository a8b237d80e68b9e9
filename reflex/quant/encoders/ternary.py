"""What IQ1_S and IQ1_M share: groups of values become points of three levels each, -1, 0 and 1, all an eighth up or down.

With three levels the best split of a group can be found by trying all: of its values in ascending order the first so many go to the
lowest level, those up to a second place to the middle, the rest to the highest. What is then no point of the grid goes to the best
of the points around it (lattice.py), and the scale is fitted again. `shifts`: bit 1, the first point of a group is down (IQ1_S: all
of them are), bit 0, the second.
"""

from functools import cache

from .. import grids
from . import lattice

UP, DOWN = -0.875, -1.125  # of level 0
DIGITS, LEVELS, RINGS = 8, 3, 3


@cache
def tables():
    """Those of lattice.py, over coordinates from 0 on."""
    grid = bytes(coordinate + 1 & 255 for coordinate in grids.iq1_s())
    return lattice.tables(grid, DIGITS, LEVELS, RINGS)


def group(v, count, search, epsilon):
    """Function (x, w, levels, room, tables) -> (scale, shifts); 0 where all values are below epsilon. `search`: function (values,
    numbers, weights, room) -> (scale, shifts, split), of values in ascending order with the places they are from."""
    from numpy import float32 as f

    points, epsilon, endless = count // 8, f(epsilon), f(lattice.ENDLESS)
    in_order, settle, again, low_of_point = _in_order(v, count), _settle(v), _again(v, count), low_of(v)

    @v.function
    def group(x, w, levels, room, tables):
        values, numbers, weights = room, v.place(room, count + 1), v.place(room, 2 * count + 2)
        largest = v.floats(0)
        for i in range(count):
            value = v.load(x, i)
            largest = v.most(largest, v.size(value))
            v.store(values, i, value)
            v.store(numbers, i, v.ints(i))
            v.store(weights, i, v.load(w, i))
        empty = largest < epsilon
        in_order(values, numbers, weights)
        v.store(values, count, v.floats(endless))
        v.store(numbers, count, v.ints(count))
        scale, shifts, split = search(values, numbers, weights, v.place(room, 3 * count + 2))
        middle, middle_place, high, high_place = split
        negative = (scale < 0) & ~empty
        for i in range(count):
            value = v.load(x, i)
            below_middle = (value < middle) | ((value == middle) & (middle_place > i))
            below_high = (value < high) | ((value == high) & (high_place > i))
            level = v.select(below_middle, 0, v.select(below_high, 1, v.ints(2)))
            v.store(levels, i, v.select(negative, 2 - level, level))
        scale, shifts = v.select(negative, -scale, scale), v.select(negative, 3 - shifts, shifts)
        off = empty & ~empty
        for p in range(points):
            at, low = DIGITS * p, low_of_point(shifts, p)
            off |= settle(v.place(x, at), v.place(w, at), v.place(levels, at), low, scale, tables)
        if v.some(off & ~empty):
            scale = v.select(off, again(x, w, levels, shifts, scale), scale)
        for i in range(count):
            v.store(levels, i, v.select(empty, 0, v.load_ints(levels, i)))
        return v.select(empty, 0, scale), v.select(empty, 0, shifts)

    return group


@cache
def splits(v):
    """A split: value and number that the middle level begins with, and those of the highest. Functions () -> one, and (better,
    values, numbers, i, j, split) -> that at the places i and j of the order where it is better."""

    @v.function
    def none():
        return v.floats(0), v.ints(0), v.floats(0), v.ints(0)

    @v.function
    def at(better, values, numbers, i, j, split):
        middle, middle_place, high, high_place = split
        middle, high = v.select(better, v.load(values, i), middle), v.select(better, v.load(values, j), high)
        middle_place = v.select(better, v.load_ints(numbers, i), middle_place)
        return middle, middle_place, high, v.select(better, v.load_ints(numbers, j), high_place)

    return none, at


@cache
def low_of(v):
    """Function (shifts, number of a point in its group) -> what level 0 stands for."""
    from numpy import float32 as f

    up, down = f(UP), f(DOWN)

    @v.function
    def low(shifts, p):
        return v.select((shifts & (1 if p == 1 else 2)) != 0, v.floats(down), v.floats(up))

    return low


def _in_order(v, count):
    """Function (values, numbers, weights): all three in ascending order of the values, equal ones as they were. A bitonic network
    (Batcher 1968, Sorting networks and their applications)."""

    @v.function
    def exchange(lanes, low, high, turn):
        a, b = v.load(lanes, low), v.load(lanes, high)
        v.store(lanes, low, v.select(turn, b, a))
        v.store(lanes, high, v.select(turn, a, b))

    @v.function
    def in_order(values, numbers, weights):
        size = 2
        while size <= count:
            apart = size >> 1
            while apart > 0:
                for i in range(count):
                    j = i ^ apart
                    if j > i:
                        low, high = (i, j) if i & size == 0 else (j, i)
                        a, b = v.load(values, low), v.load(values, high)
                        turn = (a > b) | ((a == b) & (v.load_ints(numbers, low) > v.load_ints(numbers, high)))
                        exchange(values, low, high, turn)
                        exchange(numbers, low, high, turn)
                        exchange(weights, low, high, turn)
                apart >>= 1
            size <<= 1

    return in_order


@cache
def _settle(v):
    """Function (x, w, levels, low, scale, tables) -> where the levels are no point: they become the one that is least off."""
    code, around = lattice.code(v, DIGITS, LEVELS), lattice.around(v, DIGITS, LEVELS, 1)

    @v.function
    def settle(x, w, levels, low, scale, tables):
        entry = v.look_up_four(tables, code(levels))
        if v.some(entry < 0):
            around(x, w, levels, entry, low, scale, tables)
        return entry < 0

    return settle


@cache
def coordinate(v):
    """Function (levels, number of a value in its group, shifts) -> what it stands for."""
    low = low_of(v)

    @v.function
    def coordinate(levels, i, shifts):
        return v.floats(v.load_ints(levels, i)) + low(shifts, i // DIGITS)

    return coordinate


def _again(v, count):
    """Function (x, w, levels, shifts, scale) -> the scale that fits best; the old one where that is not positive."""
    value_of = coordinate(v)

    @v.function
    def again(x, w, levels, shifts, scale):
        sum_qx, sum_q2 = v.floats(0), v.floats(0)
        for i in range(count):
            weight, q = v.load(w, i), value_of(levels, i, shifts)
            sum_qx += weight * q * v.load(x, i)
            sum_q2 += weight * q * q
        return v.select((sum_qx > 0) & (sum_q2 > 0), sum_qx / sum_q2, scale)

    return again
