"""Twins of the kernels of recurrent layers; see twins.py. The table of places is a run.Addresses."""

import numpy
from cases.recurrence import CHANNELS, GROUPED, SCAN
from twins import reference, rows_of, twin


def held(places, offset, numbers):
    """float32 [places, numbers], a copy of one state in every place."""
    return numpy.stack([place[offset : offset + numbers] for place in places.arrays])


def left(places, offset, states):
    for place, state in zip(places.arrays, states, strict=True):
        place[offset : offset + len(state)] = state


def strands_of(words):
    """(strands, rows of the batch)"""
    strands = [tuple(map(int, words[1 + 4 * i : 5 + 4 * i])) for i in range(words[0])]
    return strands, max(first + count for first, count, *_ in strands)


@twin("conv")
def conv(grid, x, w, b, y, places, strands, offset, columns, taps, biased):
    strands, rows = strands_of(strands)
    states = held(places, offset, (taps - 1) * columns)
    words = {"first": 0, "taps": taps, "states": states, "strands": strands}
    bias = b[:columns] if biased else None
    rows_of(y, rows, columns)[:] = reference("conv")(rows_of(x, rows, columns), rows_of(w, columns, taps), bias, **words)
    left(places, offset, states)


@twin("recurrence")
def recurrence(grid, q, k, v, dt, beta, out, a, d, places, strands, offset, heads, groups, size, columns, flags, scale):
    strands, rows = strands_of(strands)
    states = held(places, offset, heads * size * columns)
    words = {"heads": heads, "states": states, "strands": strands}
    q, k, v = (rows_of(*part) for part in ((q, rows, groups * size), (k, rows, groups * size), (v, rows, heads * columns)))
    if flags & SCAN:
        words |= {"groups": groups, "state_dim": size, "head_dim": columns}
        made = reference("state_scan")(v, k, q, rows_of(dt, rows, heads), a[:heads], d[:heads], **words)
    else:
        channels = bool(flags & CHANNELS)
        words |= {"key_heads": groups, "key_dim": size, "value_dim": columns, "channels": channels}
        words["order"] = "grouped" if flags & GROUPED else "tiled"
        dt = rows_of(dt, rows, heads * (size if channels else 1))
        made = reference("delta_rule")(q, k, v, dt, rows_of(beta, rows, heads), a[:heads], **words)
    rows_of(out, rows, heads * columns)[:] = made
    left(places, offset, states)


@twin("group_rmsnorm")
def group_rmsnorm(grid, y, w, groups, size, divisor, weighted, eps):
    x = rows_of(y, grid[1], groups * size)
    if weighted:
        x[:] = reference("group_rmsnorm")(x, w[: groups * size], groups=groups, size=size, eps=eps)
    else:
        x[:] = reference("head_l2norm")(x, heads=groups, head_dim=size, eps=eps)


@twin("head_part")
def head_part(grid, x, out, heads, dim, stride, first):
    words = {"heads": heads, "head_dim": dim, "stride": stride, "first": first}
    rows_of(out, grid[1], heads * dim)[:] = reference("head_part")(rows_of(x, grid[1], heads * stride), **words)
