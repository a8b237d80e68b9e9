"""The searches for scales that encoders share, over eight groups of values at once.

Each follows ggml's function of that purpose operation by operation in single precision, since the bits of a block depend on it:
the order of sums, what is compared with what, and which of two equal candidates stays. `x` and `w` are addresses of `count`
lanes of values and weights, `levels` of as many ints for the result. Where the values are all zero, so are scale and levels.
"""

from functools import cache

EPSILON = 1e-15  # a group whose largest value is below is all zeros


@cache
def extreme(v, count):
    """Function (x) -> (largest size, the first value that has it)."""

    @v.function
    def extreme(x):
        largest, value = v.floats(0), v.floats(0)
        for i in range(count):
            one = v.load(x, i)
            above = v.size(one) > largest
            largest, value = v.select(above, v.size(one), largest), v.select(above, one, value)
        return largest, value

    return extreme


@cache
def largest_size(v, count):
    """Function (x) -> the largest size."""

    @v.function
    def largest_of(x):
        largest = v.floats(0)
        for i in range(count):
            largest = v.most(largest, v.size(v.load(x, i)))
        return largest

    return largest_of


@cache
def symmetric(v, count, top, weighted):
    """Function (x, w, levels) -> scale: levels from 0 to 2 top - 1 that stand for level - top. Tries 19 scales about
    the one that makes the value of the largest size -top, and takes that of the least squared error (make_qx_quants)."""
    from numpy import float32 as f

    first, tenth, limit, epsilon = f(-top), f(0.1), f(top), f(EPSILON)
    largest_of = extreme(v, count)

    @v.function
    def sums(x, w, inverse):
        sum_lx, sum_l2 = v.floats(0), v.floats(0)
        for i in range(count):
            value = v.load(x, i)
            weight = v.load(w, i) if weighted else value * value
            level = v.floats(v.clamped(v.nearest(inverse * value), -top, top - 1))
            sum_lx += weight * value * level
            sum_l2 += weight * level * level
        return sum_lx, sum_l2

    @v.function
    def search(x, w, levels):
        largest, value = largest_of(x)
        empty = largest < epsilon
        chosen = first / value
        sum_lx, sum_l2 = sums(x, w, chosen)
        scale = v.select(sum_l2 != 0, sum_lx / sum_l2, 0)
        best = scale * sum_lx
        for k in range(-9, 10):
            if k == 0:
                continue
            inverse = -(limit + tenth * v.number(k)) / value
            sum_lx, sum_l2 = sums(x, w, inverse)
            better = (sum_l2 > 0) & (sum_lx * sum_lx > best * sum_l2)
            if v.some(better):
                scale = v.select(better, sum_lx / sum_l2, scale)
                best = v.select(better, scale * sum_lx, best)
                chosen = v.select(better, inverse, chosen)
        for i in range(count):
            level = v.clamped(v.nearest(chosen * v.load(x, i)), -top, top - 1) + top
            v.store(levels, i, v.select(empty, 0, level))
        return v.select(empty, 0, scale)

    return search


@cache
def descent(v, count, top):
    """Function (x, levels) -> scale, as `symmetric` without trying scales: each level in turn moves to where the scale of the
    others puts it while that lessens the squared error (make_q3_quants)."""
    from numpy import float32 as f

    first, epsilon, largest_of = f(-top), f(EPSILON), extreme(v, count)

    @v.function
    def search(x, levels):
        largest, value = largest_of(x)
        empty, inverse = largest < epsilon, first / value
        sum_lx, sum_l2 = v.floats(0), v.floats(0)
        for i in range(count):
            value = v.load(x, i)
            level = v.clamped(v.nearest(inverse * value), -top, top - 1)
            v.store(levels, i, level)
            sum_lx += value * value * value * level
            sum_l2 += value * value * level * level
        for _ in range(5):
            changed = empty & ~empty
            for i in range(count):
                value, old = v.load(x, i), v.load_ints(levels, i)
                weight = value * value
                lx, l2 = sum_lx - weight * value * old, sum_l2 - weight * old * old
                new = v.clamped(v.nearest(value * l2 / lx), -top, top - 1)
                moves = (lx > 0) & (new != old) & ~empty
                lx, l2 = lx + weight * value * new, l2 + weight * new * new
                better = moves & (l2 > 0) & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
                v.store(levels, i, v.select(better, new, old))
                sum_lx, sum_l2 = v.select(better, lx, sum_lx), v.select(better, l2, sum_l2)
                changed |= better
            if not v.some(changed):
                break
        for i in range(count):
            v.store(levels, i, v.select(empty, 0, v.load_ints(levels, i) + top))
        return v.select(empty | ~(sum_l2 > 0), 0, sum_lx / sum_l2)

    return search


@cache
def affine(v, count, top, first, delta, steps, absolute=False, guarded=False):
    """Function (x, w, levels, room) -> (scale, -minimum): levels from 0 to top that stand for scale * level + minimum, where no
    minimum is positive. Tries `steps` + 1 scales, fits both numbers to the levels of each by least squares, and keeps what has the
    least weighted squared (or absolute) error; the next trial starts at the kept minimum (make_qkx2_quants; `guarded`: 3)."""
    from numpy import float32 as f

    first, delta, most = f(first), f(delta), f(top)
    span, fault = _span(v, count), _fault(v, absolute)
    trial, error_of = _trial(v, count, top, guarded), _error(v, count, fault)

    @v.function
    def search(x, w, levels, room):
        low, high, sum_w, sum_x = span(x, w)
        flat, start, inverse = high <= low, low, most / (high - low)
        scale, error = 1 / inverse, v.floats(0)
        for i in range(count):
            value = v.load(x, i)
            level = v.clamped(v.nearest(inverse * (value - low)), 0, top)
            v.store(levels, i, level)
            error += v.load(w, i) * fault(scale, v.floats(level), low, value)
        for k in range(steps + 1):
            inverse = (first + delta * v.number(k) + most) / (high - low)
            spread, new_scale, new_low = trial(x, w, room, inverse, low, sum_w, sum_x)
            new_error = error_of(x, w, room, new_scale, new_low)
            better = (spread > 0) & (new_error < error)
            if v.some(better):
                for i in range(count):
                    old = v.load_ints(levels, i)
                    v.store(levels, i, v.select(better, v.ints(v.load(room, i)), old))
                error, scale = v.select(better, new_error, error), v.select(better, new_scale, scale)
                low = v.select(better, new_low, low)
        for i in range(count):
            v.store(levels, i, v.select(flat, 0, v.load_ints(levels, i)))
        return v.select(flat, 0, scale), -v.select(flat, start, low)

    return search


def _span(v, count):
    """Function (x, w) -> (least value or 0, largest value, sum of weights, weighted sum of values)."""

    @v.function
    def span(x, w):
        low = high = v.load(x, 0)
        sum_w = v.load(w, 0)
        sum_x = sum_w * low
        for i in range(1, count):
            value, weight = v.load(x, i), v.load(w, i)
            low, high = v.select(value < low, value, low), v.select(value > high, value, high)
            sum_w += weight
            sum_x += weight * value
        return v.select(low > 0, 0, low), high, sum_w, sum_x

    return span


def _fault(v, absolute):
    """Function (scale, level, minimum, value) -> how far off the level is."""

    @v.function
    def fault(scale, level, low, value):
        difference = scale * level + low - value
        return v.size(difference) if absolute else difference * difference

    return fault


def _trial(v, count, top, guarded):
    """Function (x, w, room, inverse scale, minimum, sum of w, of w x) -> (how far the levels spread, the scale and the minimum
    that fit them best); the levels go to `room`."""
    most = float(top)

    @v.function
    def level_of(value):
        if guarded:
            return v.select(value > 0, v.nearest(v.least(value, v.floats(most))), 0)
        return v.clamped(v.nearest(value), 0, top)

    @v.function
    def trial(x, w, room, inverse, low, sum_w, sum_x):
        sum_l, sum_l2, sum_xl = v.floats(0), v.floats(0), v.floats(0)
        for i in range(count):
            value, weight = v.load(x, i), v.load(w, i)
            level = v.floats(level_of(inverse * (value - low)))
            v.store(room, i, level)
            share = weight * level
            sum_l += share
            sum_l2 += share * level
            sum_xl += share * value
        spread = sum_w * sum_l2 - sum_l * sum_l
        scale = (sum_w * sum_xl - sum_x * sum_l) / spread
        least_value = (sum_l2 * sum_x - sum_l * sum_xl) / spread
        above = least_value > 0
        return spread, v.select(above, sum_xl / sum_l2, scale), v.select(above, 0, least_value)

    return trial


def _error(v, count, fault):
    """Function (x, w, levels as floats, scale, minimum) -> the weighted error."""

    @v.function
    def error_of(x, w, room, scale, low):
        error = v.floats(0)
        for i in range(count):
            error += v.load(w, i) * fault(scale, v.load(room, i), low, v.load(x, i))
        return error

    return error_of


@cache
def positive(v, count, top):
    """Function (x, w, levels) -> scale: levels from 0 to top for values of one sign, such as the scales of a block. Tries eight
    scales about the one that makes the largest value top, then moves levels as `descent` does (make_qp_quants)."""
    from numpy import float32 as f

    epsilon, tenth, first = f(EPSILON), f(0.1), f(top)
    error_of, move = _scale_error(v, count, top), _move(v, count, top)

    @v.function
    def search(x, w, levels):
        largest = v.floats(0)
        for i in range(count):
            largest = v.most(largest, v.load(x, i))
        empty, chosen = largest < epsilon, first / largest
        error = error_of(x, w, chosen, False)
        for k in range(-4, 5):
            if k == 0:
                continue
            inverse = (tenth * v.number(k) + first) / largest
            new = error_of(x, w, inverse, True)
            chosen, error = v.select(new < error, inverse, chosen), v.least(new, error)
        sum_lx, sum_l2 = v.floats(0), v.floats(0)
        for i in range(count):
            value, weight = v.load(x, i), v.load(w, i)
            level = v.least(v.ints(top), v.nearest(chosen * value))
            v.store(levels, i, level & 255)
            sum_lx += weight * value * level
            sum_l2 += weight * level * level
        for _ in range(5):
            sum_lx, sum_l2, changed = move(x, w, levels, sum_lx, sum_l2)
            if not changed:
                break
        for i in range(count):
            v.store(levels, i, v.select(empty, 0, v.load_ints(levels, i)))
        return v.select(empty | ~(sum_l2 > 0), 0, sum_lx / sum_l2)

    return search


def _scale_error(v, count, top):
    """Function (x, w, inverse scale, bounded) -> the weighted squared error of the nearest levels."""

    @v.function
    def error_of(x, w, inverse, bounded):
        scale, error = 1 / inverse, v.floats(0)
        for i in range(count):
            value = v.load(x, i)
            level = v.nearest(inverse * value)
            level = v.least(v.ints(top), level) if bounded else level & 255  # as ggml stores the first one
            difference = value - scale * level
            error += v.load(w, i) * difference * difference
        return error

    return error_of


def _move(v, count, top):
    """Function (x, w, levels, sum of w x level, of w level level) -> (both sums, whether a level moved)."""

    @v.function
    def move(x, w, levels, sum_lx, sum_l2):
        changed = v.ints(0) != 0
        for i in range(count):
            value, weight, old = v.load(x, i), v.load(w, i), v.load_ints(levels, i)
            lx, l2 = sum_lx - weight * value * old, sum_l2 - weight * old * old
            new = v.least(v.ints(top), v.nearest(value * l2 / lx))
            moves = (lx > 0) & (l2 > 0) & (new != old)
            lx, l2 = lx + weight * value * new, l2 + weight * new * new
            better = moves & (lx * lx * sum_l2 > sum_lx * sum_lx * l2)
            v.store(levels, i, v.select(better, new & 255, old))
            sum_lx, sum_l2 = v.select(better, lx, sum_lx), v.select(better, l2, sum_l2)
            changed |= better
        return sum_lx, sum_l2, v.some(changed)

    return move


@cache
def again(v, count, low, high):
    """Function (x, levels, unit, minimum): the levels nearest to (value + minimum) / unit from `low` to `high`, stored less `low`.
    Where the unit is nothing, the levels stay what the search made them."""

    @v.function
    def settle(x, levels, unit, minimum):
        keep = unit == 0
        for i in range(count):
            level = v.clamped(v.nearest((v.load(x, i) + minimum) / unit), low, high) - low
            v.store(levels, i, v.select(keep, v.load_ints(levels, i), level))

    return settle
