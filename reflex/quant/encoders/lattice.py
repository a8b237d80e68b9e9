"""What the formats of lattice points share: groups of values become signs, points of a grid (grids.py) and one scale each.

The scale is searched for; at each trial every value goes to its nearest level, and where these levels are no point of the grid, to
the best of the points around them. `tables` has these points for every combination of levels; it is made at run time, by numpy, and
its address goes to the compiled code, which looks up eight blocks at once.
"""

from functools import cache

from .search import positive

ENDLESS = 3.4028234663852886e38  # the largest number


class Lattice:
    """A format of `nbytes`: `grid` (function of grids.py), points of `digits` coordinates with `levels` levels, `rings` of
    distances whose points are tried, groups of `count`, `even` (signs come in sevens, their number is even), trials from -reach to
    reach by `step`, `empty` (largest value of a group that is nothing), `fudge` (what the scale is multiplied by at last).
    `start`: first scale by search.positive; `all_again`: after the trials all points are looked for again, else those off the
    grid."""

    def __init__(
        self, nbytes, grid, digits, levels, rings, count, even, reach, step, empty, fudge=1.0, start=False, all_again=False
    ):
        self.nbytes, self.grid, self.digits, self.levels, self.rings = nbytes, grid, digits, levels, rings
        self.count, self.groups, self.per, self.even = count, 256 // count, count // digits, even
        self.reach, self.step, self.empty, self.fudge = reach, step, empty, fudge
        self.start, self.all_again = start, all_again
        self.tables = lambda: tables(grid(), digits, levels, rings)


def tables(grid, digits, levels, rings):
    """int32 [codes]: the number of a point for its levels as digits, the first one the lowest, or -1 - where in the list the points
    around such levels begin; then uint16: for each of those their count and they themselves, packed, nearest first."""
    import numpy as np

    d, q, bits = digits, levels, bits_of(digits)
    points = np.frombuffer(grid, dtype=np.uint8).reshape(-1, d)
    points = np.searchsorted(np.unique(points), points).astype(np.int16)  # levels
    packed = (points.astype(np.uint32) << (bits * np.arange(d, dtype=np.uint32))).sum(axis=1).astype(np.uint16)
    own = (points * q ** np.arange(d)).sum(axis=1)
    found, rows, at = np.zeros(q**d, np.int32), [], 0
    found[own] = np.arange(1, len(points) + 1)
    for code in range(q**d):
        if found[code]:
            found[code] -= 1
            continue
        levels = code // q ** np.arange(d) % q
        distance = ((points - levels) ** 2).sum(axis=1)
        order = np.argsort(distance, kind="stable")
        ring = np.cumsum(np.diff(distance[order], prepend=distance[order[0]]) > 0)
        near = packed[order[ring < rings]]
        found[code] = -1 - at
        rows += [np.uint16([len(near)]), near]
        at += 1 + len(near)
    return np.concatenate([found.view(np.uint16), *rows])


def bits_of(digits):
    """Bits of a coordinate in a packed point."""
    return 16 // digits if digits == 8 else 4


def encoder(v, weighted, lattice, writer, weigher=None):
    """Function (x, w, out, room, tables). writer(v): function (numbers of points, signs, scales as whole numbers, out); weigher(v):
    function (x, w) that makes the weights where importance says nothing."""
    core = _core(v, lattice, writer)
    if weighted or not weigher:
        return core
    weigh = weigher(v)

    @v.function
    def encode(x, w, out, room, tables):
        weigh(x, w)
        core(x, w, out, room, tables)

    return encode


@cache  # both encoders of a format share it
def _core(v, lattice, writer):
    from numpy import float32 as f

    count, groups, digits, per, nbytes = lattice.count, lattice.groups, lattice.digits, lattice.per, lattice.nbytes
    signed, search, write = _signs(v, count, lattice.even), _search(v, lattice), writer(v)
    number_of = number(v, digits, lattice.levels)
    most, fudge, half, every = f(31), f(lattice.fudge), f(0.5), 127 if lattice.even else 255

    @v.function
    def encode(x, w, out, room, tables):
        numbers, signs, scales = room, v.place(room, 64), v.place(room, 96)
        whole, spare = v.place(room, 112), v.place(room, 128)
        largest = v.floats(0)
        for j in range(groups):
            here, weights, own = v.place(x, count * j), v.place(w, count * j), v.place(signs, j * count // 8)
            signed(here, weights, own)
            empty, scale = search(here, weights, spare, tables)
            negative = scale < 0
            for k in range(count // 8):
                bits = v.load_ints(own, k)
                bits = v.select(negative, ~bits & every, bits)
                v.store(own, k, v.select(empty, 0, bits))
            for k in range(per):
                v.store(numbers, per * j + k, v.select(empty, 0, number_of(v.place(spare, digits * k), tables)))
            scale = v.select(empty, 0, v.size(scale))
            v.store(scales, j, scale)
            largest = v.most(largest, scale)
        d = largest / most
        nothing, inverse = largest == 0, 1 / d
        v.put_half(out, nbytes, d * fudge)
        for j in range(groups):
            level = v.clamped(v.nearest(half * (inverse * v.load(scales, j) - 1)), 0, 15)
            v.store(whole, j, v.select(nothing, 0, level))
        write(numbers, signs, whole, out)

    return encode


@cache
def _signs(v, count, even):
    """Function (x, w, signs): sizes in place of the values; a set bit is a negative one. Where their number must be even and is
    not, the value that matters least gets the other sign."""

    @v.function
    def signed(x, w, signs):
        for k in range(count // 8):
            bits, odd = v.ints(0), v.ints(0)
            small, place = v.floats(0), v.ints(0)
            for i in range(8):
                value, weight = v.load(x, 8 * k + i), v.load(w, 8 * k + i)
                positive = value >= 0
                bits |= v.select(positive, v.ints(0), v.ints(1 << i))
                odd = odd ^ v.select(positive, v.ints(0), v.ints(1))
                matters = weight * value * value
                less = matters < small if i else matters == matters
                small, place = v.select(less, matters, small), v.select(less, i, place)
                v.store(x, 8 * k + i, v.select(positive, value, -value))
            if even:
                for i in range(8):
                    turn = (odd == 1) & (place == i)
                    value = v.load(x, 8 * k + i)
                    v.store(x, 8 * k + i, v.select(turn, -value, value))
                    bits = bits ^ v.select(turn, v.ints(1 << i), v.ints(0))
                bits &= 127
            v.store(signs, k, bits)

    return signed


@cache
def code(v, digits, levels):
    """Function (levels) -> their number as digits."""
    base = levels

    @v.function
    def code(levels):
        value = v.load_ints(levels, digits - 1)
        for i in range(digits - 2, -1, -1):
            value = value * base + v.load_ints(levels, i)
        return value

    return code


@cache
def number(v, digits, levels):
    """Function (levels, tables) -> the number of the point."""
    code_of = code(v, digits, levels)

    @v.function
    def number_of(levels, tables):
        return v.most(v.look_up_four(tables, code_of(levels)), v.ints(0))

    return number_of


@cache
def around(v, digits, levels, step):
    """Function (x, w, levels, entry, low, scale, tables): where the entry is one of the list, `levels` becomes the point in it that
    is least off. A level stands for step * level + low."""
    from numpy import float32 as f

    bits, endless, step, listed = bits_of(digits), f(ENDLESS), f(step), 4 * levels**digits
    mask = (1 << bits) - 1

    @v.function
    def around(x, w, levels, entry, low, scale, tables):
        off = entry < 0
        start = v.select(off, -1 - entry, 0)
        count = v.select(off, v.look_up_two(tables + listed, start), 0)
        best, chosen, j = v.floats(endless), v.ints(0), 1
        while v.some(count >= j):
            active = count >= j
            point = v.look_up_two(tables + listed, start + v.select(active, v.ints(j), v.ints(0)))
            distance = v.floats(0)
            for i in range(digits):
                q = v.floats((point >> (bits * i)) & mask) * step + low
                difference = scale * q - v.load(x, i)
                distance += v.load(w, i) * difference * difference
            better = active & (distance < best)
            best, chosen = v.select(better, distance, best), v.select(better, point, chosen)
            j += 1
        for i in range(digits):
            v.store(levels, i, v.select(off, (chosen >> (bits * i)) & mask, v.load_ints(levels, i)))

    return around


@cache
def _settle(v, digits, levels):
    """Function (x, root weights, levels, inverse scale, scale, tables) -> where the nearest levels are a point. `levels` becomes
    the point: those levels, or of the points around them the one that is least off."""
    from numpy import float32 as f

    top, half, one, code_of, nearby = levels - 1, f(0.5), f(1), code(v, digits, levels), around(v, digits, levels, 2)

    @v.function
    def settle(x, w, levels, inverse, scale, tables):
        for i in range(digits):
            v.store(levels, i, v.clamped(v.nearest(half * (inverse * v.load(x, i) - 1)), 0, top))
        entry = v.look_up_four(tables, code_of(levels))
        if v.some(entry < 0):
            nearby(x, w, levels, entry, v.floats(one), scale, tables)
        return entry >= 0

    return settle


@cache
def _fit(v, count):
    """Function (x, w, levels) -> (weighted sums of value x coordinate, of coordinate squared)."""

    @v.function
    def fit(x, w, levels):
        sum_qx, sum_q2 = v.floats(0), v.floats(0)
        for i in range(count):
            weight, q = v.load(w, i), v.floats(v.load_ints(levels, i) * 2 + 1)
            sum_qx += weight * v.load(x, i) * q
            sum_q2 += weight * q * q
        return sum_qx, sum_q2

    return fit


def _search(v, lattice):
    """Function (x, w, room, tables) -> (where the group is nothing, scale); the levels are at `room`."""
    from numpy import float32 as f

    count, digits, per, settle = lattice.count, lattice.digits, lattice.per, _settle(v, lattice.digits, lattice.levels)
    fit, first, again = _fit(v, lattice.count), _first(v, lattice), _again(v, lattice)
    reach, step, top = lattice.reach, f(lattice.step), f(2 * lattice.levels - 1)

    @v.function
    def search(x, w, room, tables):
        levels, trial, roots, own, kept = room, v.place(room, 32), v.place(room, 64), v.place(room, 96), v.place(room, 104)
        empty, limit, scale = first(x, w, levels, kept)
        for i in range(count):
            v.store(roots, i, v.sqrt(v.load(w, i)))
        best = v.floats(0)
        for k in range(-reach, reach + 1):
            inverse = (top + v.number(k) * step) / limit
            unit = 1 / inverse
            for p in range(per):
                at = digits * p
                on = settle(v.place(x, at), v.place(roots, at), v.place(trial, at), inverse, unit, tables)
                v.store(own, p, v.select(on, v.ints(1), v.ints(0)))
            sum_qx, sum_q2 = fit(x, w, trial)
            better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
            if v.some(better):
                scale = v.select(better, sum_qx / sum_q2, scale)
                best = v.select(better, scale * sum_qx, best)
                for i in range(count):
                    v.store(levels, i, v.select(better, v.load_ints(trial, i), v.load_ints(levels, i)))
                for p in range(per):
                    v.store(kept, p, v.select(better, v.load_ints(own, p), v.load_ints(kept, p)))
        scale = again(x, w, room, scale, tables)
        return empty, scale

    return search


def _first(v, lattice):
    """Function (x, w, levels, kept) -> (where the group is nothing, what the trials make the largest value, the first scale)."""
    from numpy import float32 as f

    count, per, epsilon, start = lattice.count, lattice.per, f(lattice.empty), lattice.start
    top, whole = f(2 * lattice.levels - 1), f(lattice.levels)
    on, by_search = 0 if lattice.all_again else 1, positive(v, count, lattice.levels + 1)

    @v.function
    def first(x, w, levels, kept):
        largest = v.load(x, 0)
        for i in range(1, count):
            largest = v.most(largest, v.load(x, i))
        for p in range(per):
            v.store(kept, p, v.ints(on))
        if start:
            scale = by_search(x, w, levels)
            return (largest < epsilon) | (scale * whole <= 0), scale * whole, scale
        for i in range(count):
            v.store(levels, i, v.ints(0))
        return (largest < epsilon) | (largest == 0), largest, largest / top

    return first


def _again(v, lattice):
    """Function (x, w, room, scale, tables) -> scale: points that were off the grid, or all, are looked for with the scale found."""
    digits, per, every, always = lattice.digits, lattice.per, lattice.all_again, lattice.start
    settle, fit = _settle(v, digits, lattice.levels), _fit(v, lattice.count)

    @v.function
    def again(x, w, room, scale, tables):
        levels, trial, roots, kept = room, v.place(room, 32), v.place(room, 64), v.place(room, 104)
        wanted = v.ints(1 if always else 0) != 0
        for p in range(per):
            wanted |= v.load_ints(kept, p) == 0
        wanted &= scale > 0
        if not v.some(wanted):
            return scale
        inverse = 1 / scale
        for p in range(per):
            at = digits * p
            settle(v.place(x, at), v.place(roots, at), v.place(trial, at), inverse, scale, tables)
            change = wanted if every or always else wanted & (v.load_ints(kept, p) == 0)
            for i in range(at, at + digits):
                v.store(levels, i, v.select(change, v.load_ints(trial, i), v.load_ints(levels, i)))
        sum_qx, sum_q2 = fit(x, w, levels)
        return v.select(wanted & (sum_q2 > 0), sum_qx / sum_q2, scale)

    return again


@cache
def squares(v):
    """Function (x, w): squares for weights, where importance says nothing."""

    @v.function
    def weigh(x, w):
        for i in range(256):
            v.store(w, i, v.load(x, i) * v.load(x, i))

    return weigh


def words(nbytes, points_at, signs_at, apart, per):
    """Writer for groups of 32 with `per` points, whose numbers are bytes from `points_at` on, and a word of four times seven signs
    and the scale, from `signs_at` on; each so many bytes `apart`, a pair."""

    def writer(v):
        between, further = apart

        @v.function
        def write(numbers, signs, scales, out):
            for j in range(8):
                for k in range(per):
                    v.put_byte(out + points_at + between * j + k, nbytes, v.load_ints(numbers, per * j + k))
                word = v.load_ints(scales, j) << 28
                for k in range(4):
                    word |= v.load_ints(signs, 4 * j + k) << (7 * k)
                v.put_four(out + signs_at + further * j, nbytes, word)

        return write

    return writer
