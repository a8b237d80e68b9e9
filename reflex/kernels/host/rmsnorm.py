"""x / sqrt(mean(x^2) + eps) * w, row by row (ops/rmsnorm.py) and head by head (ops/head_rmsnorm.py)."""

from ..arrays import array_map, array_sum_squares
from ..export import export, helper
from ..intrinsics import float_of_bits, load_i64, sqrt, to_float

_weighted = array_map("_weighted", 2, 1, lambda v, x, s: v.b.fmul(v.b.fmul(x[0], s[0]), x[1]))


@helper
def norm(x, w, out, count, eps):
    mean = array_sum_squares(x, count) / to_float(count)
    _weighted(out, x, w, count, to_float(1) / sqrt(mean + eps))
    return 0


# step: 0 input, 1 weights, 2 output, 3 columns, 4 address of the row count, 5 bytes per row, 6 eps (float32 bits)


@export
def rmsnorm(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows = load_i64(load_i64(step + 32))
    stride = load_i64(step + 40)
    for k in range((rows - thread + threads - 1) // threads):
        at = (thread + k * threads) * stride
        norm(
            load_i64(step) + at,
            load_i64(step + 8),
            load_i64(step + 16) + at,
            load_i64(step + 24),
            float_of_bits(load_i64(step + 48)),
        )
    return 0


# step: 0 buffer, 1 weights, 2 heads, 3 head dimension, 4 address of the row count, 5 bytes per row, 6 eps (float32 bits)


@export
def head_rmsnorm(step, thread, threads):
    """In place; each thread takes every threads-th (row, head)."""
    heads, dim = load_i64(step + 16), load_i64(step + 24)
    items = load_i64(load_i64(step + 32)) * heads
    for k in range((items - thread + threads - 1) // threads):
        item = thread + k * threads
        row = item // heads
        at = load_i64(step) + row * load_i64(step + 40) + 4 * dim * (item - row * heads)
        norm(at, load_i64(step + 8), at, dim, float_of_bits(load_i64(step + 48)))
    return 0
