"""IQ1_S: eight groups of 32 with four points of 8 each, all of a group shifted alike."""

from . import lattice, ternary

IMPORTANCE, NEEDED = "twice the block", True
tables = ternary.tables


def encoder(v, weighted):
    from numpy import float32 as f

    fit, number_of = ternary.group(v, 32, _search(v), 1e-12), lattice.number(v, ternary.DIGITS, ternary.LEVELS)
    fudge, half, most = f(1.125), f(0.5), f(15)

    @v.function
    def encode(x, w, out, room, tables):
        levels, scales, words = room, v.place(room, 32), v.place(room, 40)
        largest = v.floats(0)
        for j in range(8):
            scale, shifts = fit(v.place(x, 32 * j), v.place(w, 32 * j), levels, v.place(room, 48), tables)
            v.store(scales, j, scale)
            largest = v.most(largest, scale)
            word = (shifts & 1) << 15
            for k in range(4):
                number = number_of(v.place(levels, 8 * k), tables)
                v.put_byte(out + 2 + 4 * j + k, 50, number)
                word |= (number >> 8) << (3 * k)
            v.store(words, j, word)
        d = largest / most
        nothing, inverse = largest == 0, 1 / d
        v.put_half(out, 50, d * fudge)
        for j in range(8):
            level = v.clamped(v.nearest(half * (inverse * v.load(scales, j) - 1)), 0, 7)
            word = v.load_ints(words, j)
            v.put_two(out + 34 + 2 * j, 50, v.select(nothing, word & 0x7FFF, word | (level << 12)))

    return encode


def _search(v):
    """The best split by sums of all values up to a place, and of their weights."""
    from numpy import float32 as f

    up, down, one, least = f(ternary.UP), f(ternary.DOWN), f(1), f(-lattice.ENDLESS)
    no_split, split_at = ternary.splits(v)

    @v.function
    def search(values, numbers, weights, room):
        sums_x, sums_w = room, v.place(room, 33)
        all_x, all_w = v.floats(0), v.floats(0)
        for i in range(33):
            v.store(sums_x, i, all_x)
            v.store(sums_w, i, all_w)
            if i < 32:
                all_x += v.load(weights, i) * v.load(values, i)
                all_w += v.load(weights, i)
        best, scale, shifts = v.floats(least), v.floats(0), v.ints(0)
        split = no_split()
        for i in range(33):
            low_x, low_w = v.load(sums_x, i), v.load(sums_w, i)
            for j in range(i, 33):
                sum_x, sum_w = v.load(sums_x, j), v.load(sums_w, j)
                middle_x, middle_w, high_x, high_w = sum_x - low_x, sum_w - low_w, all_x - sum_x, all_w - sum_w
                for shift in range(2):
                    a = up if shift == 0 else down
                    b, c = a + one, a + one + one
                    sum_qx = low_x * a + middle_x * b + high_x * c
                    sum_q2 = low_w * a * a + middle_w * b * b + high_w * c * c
                    better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
                    if v.some(better):
                        scale = v.select(better, sum_qx / sum_q2, scale)
                        best = v.select(better, scale * sum_qx, best)
                        shifts = v.select(better, 3 * shift, shifts)
                        split = split_at(better, values, numbers, i, j, split)
        return scale, shifts, split

    return search
