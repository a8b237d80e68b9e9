"""Factors of columns, routes and heads (ops/weigh.py, ops/route_scale.py, ops/gate_heads.py), and what lies far enough above the
mean of a row (ops/sparsify.py)."""

from ..arrays import array_map, array_scale, array_sum
from ..export import export
from ..intrinsics import float_of_bits, load_f32, load_i64, sqrt, store_f32, to_float

_times = array_map("_times", 2, 0, lambda v, x, s: v.b.fmul(x[0], x[1]))
_gate = array_map("_gate", 1, 1, lambda v, x, s: v.b.fmul(x[0], v.sigmoid(s[0])))
_square_off = array_map("_square_off", 1, 1, lambda v, x, s: v.b.fmul(v.b.fsub(x[0], s[0]), v.b.fsub(x[0], s[0])))


def _above(v, x, s):
    """What is no number stays so."""
    rest = v.b.fsub(x[0], s[0])
    return v.b.select(v.b.fcmp_ordered("<", rest, v.const(rest.type, 0.0)), v.const(rest.type, 0.0), rest)


_rest_above = array_map("_rest_above", 1, 1, _above)


# step: 0 buffer, 1 weights, 2 columns, 3 address of the row count, 4 whether there is only one weight (0/1)


@export
def weigh(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, columns = load_i64(load_i64(step + 24)), load_i64(step + 16)
    for k in range((rows - thread + threads - 1) // threads):
        at = load_i64(step) + 4 * columns * (thread + k * threads)
        if load_i64(step + 32) != 0:
            array_scale(at, at, columns, load_f32(load_i64(step + 8)))
        else:
            _times(at, at, load_i64(step + 8), columns)
    return 0


# step: 0 routes, 1 factors, 2 used, 3 address of the row count


@export
def route_scale(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, used = load_i64(load_i64(step + 24)), load_i64(step + 16)
    for k in range((rows - thread + threads - 1) // threads):
        at = load_i64(step) + 8 * used * (thread + k * threads)
        for j in range(used):
            expert = int(load_f32(at + 4 * (used + j)))
            store_f32(at + 4 * j, load_f32(at + 4 * j) * load_f32(load_i64(step + 8) + 4 * expert))
    return 0


# step: 0 buffer, 1 gates, 2 columns of a head, 3 address of the row count, 4 heads


@export
def gate_heads(step, thread, threads):
    """Each thread takes every threads-th (row, head)."""
    columns, heads = load_i64(step + 16), load_i64(step + 32)
    items = load_i64(load_i64(step + 24)) * heads
    for k in range((items - thread + threads - 1) // threads):
        item = thread + k * threads
        at = load_i64(step) + 4 * columns * item
        _gate(at, at, columns, load_f32(load_i64(step + 8) + 4 * item))
    return 0


# step: 0 buffer, 1 scratch (a row), 2 columns, 3 address of the row count, 4 deviations (float32 bits), 5 scratch bytes per thread


@export
def sparsify(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows, columns = load_i64(load_i64(step + 24)), load_i64(step + 16)
    squares = load_i64(step + 8) + thread * load_i64(step + 40)
    for k in range((rows - thread + threads - 1) // threads):
        at = load_i64(step) + 4 * columns * (thread + k * threads)
        mean = array_sum(at, columns) / to_float(columns)
        _square_off(squares, at, columns, mean)
        deviation = sqrt(array_sum(squares, columns) / to_float(columns - 1))
        _rest_above(at, at, columns, mean + float_of_bits(load_i64(step + 32)) * deviation)
    return 0
