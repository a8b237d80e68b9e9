"""Twins of the kernels of recurrent layers; see twins.py. The table of places is a run.Addresses."""

import numpy
from cases.conv import BIASED, SILU
from cases.group_rmsnorm import GATED, WEIGHTED
from cases.recurrence import GROUPED, NORMED, SIGMOID, STEPS
from twins import reference, rows_of, twin

from reflex.ops.gated import UNITS, silu


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
def conv(grid, *given):
    places, strands, taps, flags = given[18:]
    strands, rows = strands_of(strands)
    for x, w, b, y, offset, columns in (given[i : i + 6] for i in range(0, 18, 6)):
        if columns:
            states = held(places, offset, (taps - 1) * columns)
            words = {"first": 0, "taps": taps, "states": states, "strands": strands}
            bias = b[:columns] if flags & BIASED else None
            made = reference("conv")(rows_of(x, rows, columns), rows_of(w, columns, taps), bias, **words)
            rows_of(y, rows, columns)[:] = silu(made) if flags & SILU else made
            left(places, offset, states)


def recurrence(rule):
    @twin(f"recurrence_{rule}_(?:any|8)")
    def made(
        grid, q, k, v, dt, beta, bias, out, a, d, places, strands, offset, heads, groups, size, columns, lanes, room, flags, scale,
        eps,
    ):  # fmt: skip
        strands, rows = strands_of(strands)
        states = held(places, offset, heads * size * columns)
        words = {"heads": heads, "states": states, "strands": strands}
        q, k, v = (rows_of(*part) for part in ((q, rows, groups * size), (k, rows, groups * size), (v, rows, heads * columns)))
        width = heads * (size if rule == "channels" else 1)
        dt = rows_of(dt, rows, width)
        if flags & STEPS:
            dt = numpy.logaddexp(dt + bias[:width], 0).astype("float32")
        if flags & NORMED:
            q, k = (reference("head_l2norm")(x, heads=groups, head_dim=size, eps=eps) for x in (q, k))
        if rule == "scan":
            words |= {"groups": groups, "state_dim": size, "head_dim": columns}
            result = reference("state_scan")(v, k, q, dt, a[:heads], d[:heads], **words)
        else:
            words |= {"key_heads": groups, "key_dim": size, "value_dim": columns, "channels": rule == "channels"}
            words["order"] = "grouped" if flags & GROUPED else "tiled"
            beta = rows_of(beta, rows, heads)
            if flags & SIGMOID:
                beta = (1 / (1 + numpy.exp(-beta))).astype("float32")
            result = reference("delta_rule")(q, k, v, dt, beta, a[:heads], **words)
        rows_of(out, rows, heads * columns)[:] = result
        left(places, offset, states)


for _rule in ("delta", "channels", "scan"):
    recurrence(_rule)


@twin("head_rmsnorm_(silu|sigmoid)")
def head_rmsnorm_gated(act, grid, o, w, z, heads, dim, eps):
    normed = reference("head_rmsnorm")(rows_of(o, grid[1], heads * dim), w[:dim], heads=heads, head_dim=dim, eps=eps)
    gates = rows_of(z, grid[1], heads * dim)
    gates[:] = UNITS[act](gates, normed)


@twin("group_rmsnorm")
def group_rmsnorm(grid, y, w, o, groups, size, divisor, flags, eps):
    x = rows_of(y, grid[1], groups * size)
    if flags & GATED:
        x[:] = UNITS["silu"](x, rows_of(o, grid[1], groups * size))
    if flags & WEIGHTED:
        x[:] = reference("group_rmsnorm")(x, w[: groups * size], groups=groups, size=size, eps=eps)
    else:
        x[:] = reference("head_l2norm")(x, heads=groups, head_dim=size, eps=eps)


@twin("head_part")
def head_part(grid, x, out, heads, dim, stride, first):
    words = {"heads": heads, "head_dim": dim, "stride": stride, "first": first}
    rows_of(out, grid[1], heads * dim)[:] = reference("head_part")(rows_of(x, grid[1], heads * stride), **words)
