"""IQ1_M: sixteen groups of 16 with two points of 8 each, every point shifted by itself; the scale again from all that is kept."""

from functools import cache

from . import lattice, ternary

IMPORTANCE, NEEDED = "twice the block", False
tables = ternary.tables
SUMS = 8  # weighted sums of value x coordinate and of coordinate squared, of four ways to shift


def encoder(v, weighted):
    core = _core(v)
    if weighted:
        return core
    weigh = lattice.squares(v)

    @v.function
    def encode(x, w, out, room, tables):
        weigh(x, w)
        core(x, w, out, room, tables)

    return encode


@cache
def _core(v):
    from numpy import float32 as f

    fit, number_of = ternary.group(v, 16, _search(v), 1e-7), lattice.number(v, ternary.DIGITS, ternary.LEVELS)
    value_of, fudge, half, most = ternary.coordinate(v), f(1.1125), f(0.5), f(15)

    @v.function
    def encode(x, w, out, room, tables):
        levels, scales, shifted, upper = room, v.place(room, 256), v.place(room, 272), v.place(room, 288)
        largest = v.floats(0)
        for j in range(16):
            own = v.place(levels, 16 * j)
            scale, shifts = fit(v.place(x, 16 * j), v.place(w, 16 * j), own, v.place(room, 304), tables)
            v.store(scales, j, scale)
            v.store(shifted, j, shifts)
            largest = v.most(largest, scale)
            first, second = number_of(own, tables), number_of(v.place(own, 8), tables)
            v.put_two(out + 2 * j, 56, (first & 255) | ((second & 255) << 8))
            v.store(upper, j, (first >> 8) | ((second >> 8) << 4))
        d = largest / most
        nothing, inverse = largest == 0, 1 / d
        sum_qx, sum_q2 = v.floats(0), v.floats(0)
        for j in range(16):
            level = v.clamped(v.nearest(half * (inverse * v.load(scales, j) - 1)), 0, 7)
            v.store(scales, j, v.select(nothing, 0, level))
            shifts, unit = v.load_ints(shifted, j), v.floats(level * 2 + 1)
            down = ((shifts & 2) << 2) | ((shifts & 1) << 7)
            v.put_byte(out + 32 + j, 56, v.load_ints(upper, j) | v.select(nothing, 0, down))
            for i in range(16):
                weight, value = v.load(w, 16 * j + i), v.load(x, 16 * j + i)
                q = value_of(v.place(levels, 16 * j), i, shifts) * unit
                sum_qx += weight * q * value
                sum_q2 += weight * q * q
        d = v.select(nothing, 0, v.select(sum_q2 > 0, sum_qx / sum_q2, d))
        v.put_half(upper, 4, d * fudge)
        for k in range(4):
            word = ((v.load_ints(upper, 0) >> (4 * k)) & 15) << 12
            for j in range(4):
                word |= v.load_ints(scales, 4 * k + j) << (3 * j)
            v.put_two(out + 48 + 2 * k, 56, word)

    return encode


def _search(v):
    """The best split. ggml adds up the values in their order for each split anew; here the sums up to the first place, and those to
    the second, are carried on, and only the rest is added up again."""
    from numpy import float32 as f

    least = f(-lattice.ENDLESS)
    no_split, split_at = ternary.splits(v)
    terms_of, added, rest = _terms(v), _added(v), _rest(v)

    @v.function
    def search(values, numbers, weights, room):
        low, middle, total, terms = room, v.place(room, SUMS), v.place(room, 2 * SUMS), v.place(room, 3 * SUMS)
        terms_of(values, numbers, weights, terms)
        for k in range(SUMS):
            v.store(low, k, v.floats(0))
        best, scale, shifts = v.floats(least), v.floats(0), v.ints(0)
        split = no_split()
        for i in range(17):
            for k in range(SUMS):
                v.store(middle, k, v.load(low, k))
            for j in range(i, 17):
                rest(middle, terms, j, total)
                for k in range(4):
                    sum_qx, sum_q2 = v.load(total, k), v.load(total, 4 + k)
                    better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
                    if v.some(better):
                        scale = v.select(better, sum_qx / sum_q2, scale)
                        best = v.select(better, scale * sum_qx, best)
                        shifts = v.select(better, k, shifts)
                        split = split_at(better, values, numbers, i, j, split)
                if j < 16:
                    added(middle, v.place(terms, SUMS * (3 * j + 1)))
            if i < 16:
                added(low, v.place(terms, SUMS * 3 * i))
        return scale, shifts, split

    return search


def _terms(v):
    """Function (values, numbers, weights, terms): what each value, in each level, adds to the sums."""
    from numpy import float32 as f

    up, down, one, points = f(ternary.UP), f(ternary.DOWN), f(1), ternary.DIGITS

    @v.function
    def terms_of(values, numbers, weights, terms):
        for j in range(16):
            value, weight, first = v.load(values, j), v.load(weights, j), v.load_ints(numbers, j) < points
            high, low = up, down
            for level in range(3):
                at = SUMS * (3 * j + level)
                up_qx, down_qx = weight * high * value, weight * low * value
                up_q2, down_q2 = weight * high * high, weight * low * low
                v.store(terms, at, up_qx)
                v.store(terms, at + 1, v.select(first, up_qx, down_qx))
                v.store(terms, at + 2, v.select(first, down_qx, up_qx))
                v.store(terms, at + 3, down_qx)
                v.store(terms, at + 4, up_q2)
                v.store(terms, at + 5, v.select(first, up_q2, down_q2))
                v.store(terms, at + 6, v.select(first, down_q2, up_q2))
                v.store(terms, at + 7, down_q2)
                high, low = high + one, low + one

    return terms_of


def _added(v):
    """Function (sums, terms): sums += terms."""

    @v.function
    def added(sums, terms):
        for k in range(SUMS):
            v.store(sums, k, v.load(sums, k) + v.load(terms, k))

    return added


def _rest(v):
    """Function (sums, terms, j, total): total = sums and what the values from place j on add to them in the highest level."""

    @v.function
    def store(sums, a, b, c, d):
        v.store(sums, 0, a)
        v.store(sums, 1, b)
        v.store(sums, 2, c)
        v.store(sums, 3, d)

    @v.function
    def rest(sums, terms, j, total):
        a, b, c, d = v.load(sums, 0), v.load(sums, 1), v.load(sums, 2), v.load(sums, 3)
        e, g, h, i = v.load(sums, 4), v.load(sums, 5), v.load(sums, 6), v.load(sums, 7)
        for k in range(j, 16):
            at = SUMS * (3 * k + 2)
            a += v.load(terms, at)
            b += v.load(terms, at + 1)
            c += v.load(terms, at + 2)
            d += v.load(terms, at + 3)
            e += v.load(terms, at + 4)
            g += v.load(terms, at + 5)
            h += v.load(terms, at + 6)
            i += v.load(terms, at + 7)
        store(total, a, b, c, d)
        store(v.place(total, 4), e, g, h, i)

    return rest
