"""Four residual streams (ops/streams_*.py), which lie side by side in a row. A thread takes whole rows."""

from ..arrays import array_copy, array_map, array_scale, array_sum_squares
from ..export import export, helper
from ..intrinsics import load_f32, load_i64, sqrt, to_float

COUNT = 4
LEAST = 1e-30  # of a sum of squares that is divided by

_plus_scaled = array_map("_plus_scaled", 2, 1, lambda v, x, s: v.fma(x[1], s[0], x[0]))
_plus = array_map("_plus", 2, 0, lambda v, x, s: v.b.fadd(x[0], x[1]))
_corrected = array_map("_corrected", 3, 1, lambda v, x, s: v.fma(v.b.fsub(x[1], x[2]), s[0], x[0]))  # p + c (y - first)


@helper
def stretch(x, other, count):
    """What brings `other` to the length of x."""
    squares = max(array_sum_squares(other, count), to_float(1) * LEAST)
    return sqrt(array_sum_squares(x, count)) / sqrt(squares)


# step: 0 output, 1 and 2 inputs, 3 columns of a stream, 4 address of the row count, 5 a third input


@export
def streams_begin(step, thread, threads):
    n = load_i64(step + 24)
    for i in range((load_i64(load_i64(step + 32)) - thread + threads - 1) // threads):
        row = thread + i * threads
        x, others = load_i64(step + 8) + 4 * n * row, load_i64(step + 16) + 12 * n * row
        out = load_i64(step) + 16 * n * row
        array_copy(out, x, n)
        for j in range(COUNT - 1):
            array_scale(out + 4 * n * (j + 1), others + 4 * n * j, n, stretch(x, others + 4 * n * j, n))
    return 0


@export
def streams_predict(step, thread, threads):
    n = load_i64(step + 24)
    for i in range((load_i64(load_i64(step + 32)) - thread + threads - 1) // threads):
        row = thread + i * threads
        s, c = load_i64(step + 8) + 16 * n * row, load_i64(step + 16) + 4 * COUNT * COUNT * row
        for j in range(COUNT):
            out = load_i64(step) + 4 * n * (COUNT * row + j)
            array_copy(out, s + 4 * n * j, n)
            for k in range(COUNT):
                _plus_scaled(out, out, s + 4 * n * k, n, load_f32(c + 4 * (COUNT * j + k)))
    return 0


@export
def streams_correct(step, thread, threads):
    n = load_i64(step + 24)
    for i in range((load_i64(load_i64(step + 32)) - thread + threads - 1) // threads):
        row = thread + i * threads
        p, y, c = load_i64(step + 8) + 16 * n * row, load_i64(step + 16) + 4 * n * row, load_i64(step + 40) + 4 * COUNT * row
        out = load_i64(step) + 16 * n * row
        for j in range(COUNT):
            _corrected(out + 4 * n * j, p + 4 * n * j, y, p, n, load_f32(c + 4 * j) + to_float(1))
    return 0


@export
def streams_inject(step, thread, threads):
    n = load_i64(step + 24)
    for i in range((load_i64(load_i64(step + 32)) - thread + threads - 1) // threads):
        row = thread + i * threads
        y = load_i64(step + 16) + 4 * n * row
        for j in range(1, COUNT):
            at = load_i64(step) + 4 * n * (COUNT * row + j)
            _plus(at, at, y, n)
    return 0


@export
def streams_end(step, thread, threads):
    n = load_i64(step + 24)
    for i in range((load_i64(load_i64(step + 32)) - thread + threads - 1) // threads):
        row = thread + i * threads
        s, back, out = load_i64(step + 8) + 16 * n * row, load_i64(step + 16) + 12 * n * row, load_i64(step) + 4 * n * row
        array_copy(out, s, n)
        for j in range(COUNT - 1):
            _plus_scaled(out, out, back + 4 * n * j, n, stretch(s, back + 4 * n * j, n))
        array_scale(out, out, n, to_float(1) / to_float(COUNT))
    return 0
