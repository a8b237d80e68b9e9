"""Norms row by row (ops/rmsnorm.py, ops/layernorm.py) and head by head (ops/head_rmsnorm.py, ops/head_layernorm.py,
ops/head_l2norm.py, ops/group_rmsnorm.py), and parts of heads (ops/head_part.py)."""

from ..arrays import array_copy, array_map, array_scale, array_sum, array_sum_squares
from ..export import export, helper
from ..intrinsics import float_of_bits, load_i64, sqrt, to_float

_weighted = array_map("_weighted", 2, 1, lambda v, x, s: v.b.fmul(v.b.fmul(x[0], s[0]), x[1]))
_minus = array_map("_minus", 1, 1, lambda v, x, s: v.b.fsub(x[0], s[0]))
_plus = array_map("_plus", 2, 0, lambda v, x, s: v.b.fadd(x[0], x[1]))


@helper
def norm(x, w, out, count, eps):
    """w: address, 0 where there are no weights."""
    scale = to_float(1) / sqrt(array_sum_squares(x, count) / to_float(count) + eps)
    if w != 0:
        _weighted(out, x, w, count, scale)
    else:
        array_scale(out, x, count, scale)
    return 0


@helper
def share(items, thread, threads):
    """How many of `items` a thread has that takes every threads-th from its own number on."""
    return (items - thread + threads - 1) // threads


# step: 0 input, 1 weights, 2 output, 3 columns, 4 address of the row count, 5 bytes per row, 6 eps (float32 bits)


@export
def rmsnorm(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows = load_i64(load_i64(step + 32))
    stride = load_i64(step + 40)
    for k in range(share(rows, thread, threads)):
        at = (thread + k * threads) * stride
        norm(
            load_i64(step) + at,
            load_i64(step + 8),
            load_i64(step + 16) + at,
            load_i64(step + 24),
            float_of_bits(load_i64(step + 48)),
        )
    return 0


@helper
def share_of_heads(step, thread, threads):
    """As `share`, of all (row, head)."""
    return share(load_i64(load_i64(step + 32)) * load_i64(step + 16), thread, threads)


@helper
def of_head(step, item):
    """Bytes before the head of (row, head) number `item` in its row, and before its weights where each has its own."""
    return 4 * load_i64(step + 24) * (item - item // load_i64(step + 16) * load_i64(step + 16))


@helper
def head_at(step, item):
    """Address of the values of (row, head) number `item`."""
    return load_i64(step) + item // load_i64(step + 16) * load_i64(step + 40) + of_head(step, item)


# step: 0 buffer, 1 weights or 0, 2 heads, 3 head dimension, 4 address of the row count, 5 bytes per row, 6 eps (float32 bits),
# 7 dimensions of a head that are normed, the first ones


@export
def head_rmsnorm(step, thread, threads):
    """In place; each thread takes every threads-th (row, head)."""
    for k in range(share_of_heads(step, thread, threads)):
        at = head_at(step, thread + k * threads)
        norm(at, load_i64(step + 8), at, load_i64(step + 56), float_of_bits(load_i64(step + 48)))
    return 0


@helper
def centred_norm(x, w, b, out, count, eps):
    """w and b: addresses, 0 where there is none."""
    _minus(out, x, count, array_sum(x, count) / to_float(count))
    scale = to_float(1) / sqrt(array_sum_squares(out, count) / to_float(count) + eps)
    if w != 0:
        _weighted(out, out, w, count, scale)
    else:
        array_scale(out, out, count, scale)
    if b != 0:
        _plus(out, out, b, count)
    return 0


# step: as of rmsnorm, weights 0 where there are none; 7 bias or 0


@export
def layernorm(step, thread, threads):
    """Each thread takes every threads-th row."""
    rows = load_i64(load_i64(step + 32))
    stride = load_i64(step + 40)
    for k in range(share(rows, thread, threads)):
        at = (thread + k * threads) * stride
        centred_norm(
            load_i64(step) + at,
            load_i64(step + 8),
            load_i64(step + 56),
            load_i64(step + 16) + at,
            load_i64(step + 24),
            float_of_bits(load_i64(step + 48)),
        )
    return 0


# step: as of head_rmsnorm; each head has weights of its own


@export
def head_layernorm(step, thread, threads):
    """In place; each thread takes every threads-th (row, head)."""
    for k in range(share_of_heads(step, thread, threads)):
        item = thread + k * threads
        at, weights = head_at(step, item), load_i64(step + 8) + of_head(step, item)
        centred_norm(at, weights, 0, at, load_i64(step + 24), float_of_bits(load_i64(step + 48)))
    return 0


# step: as of head_rmsnorm; each group has weights of its own


@export
def group_rmsnorm(step, thread, threads):
    """In place; each thread takes every threads-th (row, group)."""
    for k in range(share_of_heads(step, thread, threads)):
        item = thread + k * threads
        at, weights = head_at(step, item), load_i64(step + 8) + of_head(step, item)
        norm(at, weights, at, load_i64(step + 24), float_of_bits(load_i64(step + 48)))
    return 0


# step: as of head_rmsnorm, without weights


@export
def head_l2norm(step, thread, threads):
    """In place; each thread takes every threads-th (row, head)."""
    dim = load_i64(step + 24)
    for k in range(share_of_heads(step, thread, threads)):
        at = head_at(step, thread + k * threads)
        array_scale(at, at, dim, to_float(1) / sqrt(array_sum_squares(at, dim) + float_of_bits(load_i64(step + 48))))
    return 0


# step: 0 input, 1 output, 2 heads, 3 columns taken, 4 address of the row count, 5 columns of a head, 6 first of those taken


@export
def head_part(step, thread, threads):
    """Each thread takes every threads-th (row, head)."""
    dim, stride = load_i64(step + 24), load_i64(step + 40)
    for k in range(share_of_heads(step, thread, threads)):
        item = thread + k * threads
        source = load_i64(step) + 4 * (stride * item + load_i64(step + 48))
        array_copy(load_i64(step + 8) + 4 * dim * item, source, dim)
    return 0
