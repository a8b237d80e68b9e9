"""What launches of CUDA kernels do, in numpy: a twin per kernel with the same parameters, for running whole programs in seconds.

`run(name, grid, arguments)` does one launch on numpy arrays; a name without a twin is a KeyError. test_whole.py holds every twin
to the cases of its kernel, so that a program which is right with twins has launches that are right.
"""

import re
from functools import cache

import numpy
from cases.halves import ORDER, split, stored

from reflex import ops, quant
from reflex.ops.linear import product
from reflex.quant.types import by_id, by_name, row_bytes

UNITS = list(ops.find("gated").UNITS)  # by their numbers in kernels
TWINS = []  # (pattern of names, function)


def twin(pattern):
    """Register a function of (what the pattern caught, grid, arguments) or, where it catches nothing, (grid, arguments)."""

    def register(function):
        TWINS.append((re.compile(pattern), function))
        return function

    return register


@cache
def find(name):
    """The twin of a kernel; KeyError."""
    for pattern, function in TWINS:
        found = pattern.fullmatch(name)
        if found:
            return lambda grid, arguments: function(*found.groups(), grid, *arguments)
    raise KeyError(name)


def known(name):
    return any(pattern.fullmatch(name) for pattern, _ in TWINS)


def run(name, grid, arguments):
    flat = [a.reshape(-1) if isinstance(a, numpy.ndarray) else a for a in arguments]
    find(name)(grid, flat)


def reference(op):
    return ops.find(op).reference


def rows_of(array, rows, columns):
    """A view [rows, columns] of the beginning of an array."""
    return array[: rows * columns].reshape(rows, columns)


# ---- elements and rows -----------------------------------------------------------------------------------


@twin("rope_angles")
def rope_angles(grid, frequencies, positions, out, pairs, rows, magnitude):
    angle = positions[:rows, None].astype(float) * frequencies[:pairs]
    rows_of(out, rows, 2 * pairs)[:] = (magnitude * numpy.stack([numpy.cos(angle), numpy.sin(angle)], -1)).reshape(rows, -1)


@twin(r"embed_(\w+)")
def embed(kind, grid, weights, ids, out, columns, scale, adding):
    held = rows_of(out, grid[1], columns)
    rows = numpy.float32(scale) * table_rows(kind, weights, ids[: grid[1]], columns)
    held[:] = held + rows if adding else rows


def table_rows(kind, weights, numbers, columns):
    size = row_bytes(by_name(kind).id, columns)
    data = numpy.concatenate([weights[n * size : (n + 1) * size] for n in numbers])
    return quant.decode(kind, data).reshape(len(numbers), columns)


@twin("rmsnorm")
def rmsnorm(grid, x, w, out, columns, eps):
    rows_of(out, grid[0], columns)[:] = reference("rmsnorm")(rows_of(x, grid[0], columns), w[:columns], eps=eps)


@twin("rmsnorm_add")
def rmsnorm_add(grid, y, w, x, columns, eps, scale):
    normed = reference("rmsnorm")(rows_of(y, grid[0], columns), w[:columns], eps=eps)
    rows_of(x, grid[0], columns)[:] += numpy.float32(scale) * normed


@twin("layernorm")
def layernorm(grid, x, w, b, out, columns, flags, eps):
    w, b = w[:columns] if flags & 1 else None, b[:columns] if flags & 2 else None
    rows_of(out, grid[0], columns)[:] = reference("layernorm")(rows_of(x, grid[0], columns), w, b, eps=eps)


@twin("head_layernorm")
def head_layernorm(grid, q, w, heads, dim, eps):
    x = rows_of(q, grid[1], heads * dim)
    x[:] = reference("head_layernorm")(x, w[: heads * dim], heads=heads, head_dim=dim, eps=eps)


@twin("head_rmsnorm")
def head_rmsnorm(grid, q, w, weighted, heads, dim, normed, eps):
    x = rows_of(q, grid[1], heads * dim)
    x[:] = reference("head_rmsnorm")(x, w[:normed] if weighted else None, heads=heads, head_dim=dim, eps=eps)


@twin("weigh")
def weigh(grid, x, w, columns, one):
    rows = rows_of(x, grid[1], columns)
    rows[:] = reference("weigh")(rows, w[: 1 if one else columns])


@twin("gate_heads")
def gate_heads(grid, a, g, columns):
    heads, rows = grid[:2]
    held = rows_of(a, rows, heads * columns)
    held[:] = reference("gate_heads")(held, rows_of(g, rows, heads), heads=heads)


@twin("head_join")
def head_join(grid, t, x, y, heads, made, dim, used):
    rows, parts = grid[1], (grid[1], heads, -1)
    t, x = rows_of(t, rows, heads * made).reshape(parts), rows_of(x, rows, heads * dim).reshape(parts)
    joined = numpy.concatenate([t, x[..., used:]], -1)
    rows_of(y, rows, joined[0].size)[:] = joined.reshape(rows, -1)


@twin("head_transposed(?:_many)?")
def head_transposed(grid, x, w, y, rows, heads, dim, used, columns, stride):
    w = numpy.stack([w[head * stride :][: used * columns].reshape(used, columns) for head in range(heads)])
    words = {"heads": heads, "head_dim": dim, "transposed": True}
    made = reference("head_linear")(rows_of(x, rows, heads * dim), w, **words)
    rows_of(y, *made.shape)[:] = made


@twin("rope")
def rope(grid, q, angles, heads, dim, pairs, neox):
    x = rows_of(q, grid[1], heads * dim)
    x[:] = turned(x.reshape(grid[1], heads, dim), angles, pairs, neox).reshape(x.shape)


def turned(x, angles, pairs, neox):
    """x [rows, heads, dim] rotated by the angles of its rows."""
    y, angles = x.copy(), rows_of(angles, len(x), 2 * pairs).reshape(len(x), 1, pairs, 2)
    c, s = angles[..., 0], angles[..., 1]
    a, b = (slice(0, pairs), slice(pairs, 2 * pairs)) if neox else (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    y[..., a], y[..., b] = x[..., a] * c - x[..., b] * s, x[..., a] * s + x[..., b] * c
    return y


@twin("select")
def select(grid, x, wanted, out, columns):
    for row, number in enumerate(wanted[: grid[1]]):
        out[row * columns : (row + 1) * columns] = x[number * columns : (number + 1) * columns]


@twin("add")
def add(grid, x, y, count, scale):
    x[:count] += numpy.float32(scale) * y[:count]


@twin(r"gated_(\w+)")
def gated(act, grid, g, u, count, limit=0.0):
    g[:count] = reference("gated")(g[:count], u[:count], act="silu" if limit else act, limit=limit)


@twin(r"unary_(\w+)")
def unary(act, grid, x, count, *parameters):
    given = parameters if act == "xielu" else ()
    x[:count] = reference("unary")(x[:count], act=act, parameters=given)


@twin("clamp")
def clamp(grid, x, count, limit):
    x[:count] = reference("clamp")(x[:count], limit=limit)


@twin("scale")
def scale(grid, x, count, factor):
    x[:count] *= numpy.float32(factor)


@twin("softcap")
def softcap(grid, x, count, cap):
    x[:count] = reference("softcap")(x[:count], cap=cap)


@twin("bias")
def bias(grid, x, b, columns):
    rows_of(x, grid[1], columns)[:] += b[:columns]


@twin("temper")
def temper(grid, x, positions, columns, length, ahead, scale):
    q = rows_of(x, grid[1], columns)
    q[:] = reference("temper")(q, scale=scale, length=length, ahead=ahead, positions=positions[: grid[1]])


@twin("gate_rows")
def gate_rows(grid, y, h, w, columns, inputs):
    rows = rows_of(y, grid[0], columns)
    rows[:] = reference("gate_rows")(rows, rows_of(h, grid[0], inputs), w[:inputs])


@twin("logits_stats")
def logits_stats(grid, logits, stats, partials, counters, columns):
    for x, found in zip(rows_of(logits, grid[1], columns), rows_of(stats, grid[1], 4), strict=True):
        top = numpy.fmax(-numpy.inf, numpy.fmax.reduce(x))
        best = numpy.flatnonzero(x == top)[:1]
        total = numpy.exp(x.astype(float) - (top if numpy.isfinite(top) else 0)).sum()
        with numpy.errstate(divide="ignore"):
            found[[0, 1, 3]] = top, total, numpy.log(total)
        found.view("i4")[2] = best[0] if len(best) else -1


@twin(r"expand_(\w+)")
def expand(kind, grid, weights, out, count, wide):
    block = by_name(kind)
    values = quant.decode(kind, weights[: count // block.elements * block.nbytes])
    if wide == 2:
        values, wide = values - values.astype("f2").astype("f4"), 0
    out.view("f4" if wide else "f2")[:count] = values


# ---- products --------------------------------------------------------------------------------------------


@twin("halves")
def to_halves(grid, x, norm, normed, eps, columns, stride, xh, factor, both, xl, rest):
    rows = numpy.stack([x[row * stride : row * stride + columns] for row in range(grid[0])])
    halved, factors, left = split(rows, norm[:columns] if normed else None, eps)
    words = stored(halved)
    rows_of(xh, *words.shape)[:] = words
    factor[: grid[0]] = factors
    if both:
        rows_of(xl, *words.shape)[:] = stored(left)
        rest[: grid[0]] = factors * numpy.float32(2**-11)


def from_halves(xh, factor, count, columns):
    padded = -(-columns // 32) * 32
    halved = rows_of(xh, count, padded // 2).view("f2").reshape(count, -1, 4)
    x = numpy.empty_like(halved)
    x[:, :, ORDER] = halved
    return x.reshape(count, padded)[:, :columns].astype("f4") * factor[:count, None]


KNOWN = {}  # (address, type, rows, columns) -> decoded matrix, kept with its blocks


def matrix(weights, kind, rows, columns):
    data = weights[: rows * row_bytes(kind, columns)]
    key = data.ctypes.data, kind, rows, columns
    found = KNOWN.get(key)
    if found is None or not numpy.array_equal(found[0], data):
        decoded = quant.decode(by_id(kind).name, data).reshape(rows, columns).astype("f4")
        found = KNOWN[key] = data.copy(), decoded
    return found[1]


def products(x, parts, mode, act, scale, whole=32):
    """x [rows, columns]; parts: (weights, type, rows, bias, biased, out, stride) of each matrix. `whole`: what columns are a
    multiple of."""
    assert all(x.shape[1] % max(whole, by_id(part[1]).elements) == 0 for part in parts), "columns that the kernel cannot take"
    results = []
    for weights, kind, rows, b, biased, _, _ in parts:
        y = product(x, matrix(weights, kind, rows, x.shape[1]))
        results.append(y + b[:rows] if biased else y)
    if mode == 2:
        results, parts = [reference("gated")(*results, act=UNITS[act])], parts[:1]
    for y, (_, _, rows, _, _, out, stride) in zip(results, parts, strict=True):
        for row, values in enumerate(y):
            place = slice(row * stride, row * stride + rows)
            out[place] = out[place] + numpy.float32(scale) * values if mode == 1 else values


@twin(r"linear_(stream|dot)_(\w+)")
def linear_one(kind, name, grid, x, norm, normed, eps, columns, *rest):
    h = x[None, :columns]
    if kind == "stream" and quant.load(name).STREAM.rounded:
        halved, factors, _ = split(h, norm[:columns] if normed else None, eps)
        h = halved[:, :columns].astype("f4") * factors[:, None]
    elif normed:
        h = reference("rmsnorm")(h, norm[:columns], eps=eps)
    parts = [(*rest[at : at + 6], rest[at + 2]) for at in range(0, 18, 6) if rest[at + 2]]
    products(h, parts, rest[18] & 3, *rest[19:21], 32 if kind == "stream" else 256)


@twin(r"linear_(?:rows|tiles)_\w+")
def linear_rows(grid, xh, factor, count, columns, *rest):
    if len(rest) > 25 and rest[25]:  # each
        return routed(grid, xh, factor, columns, rest)
    parts = [rest[at : at + 7] for at in range(0, 21, 7) if rest[at + 2]]
    products(from_halves(xh, factor, count, columns), parts, *rest[21:24])


def routed(grid, xh, factor, columns, rest):
    """Pairs of a row and an expert: linear_rows_32_<type> of formats that are not tiled."""
    mode, act, (each, order, tiles), nexts, bias_stride = rest[21], rest[22], rest[25:28], rest[28:30], rest[30]
    cut = rows_of(tiles, grid[1], 4)
    h = from_halves(xh, factor, int(order[: cut[:, 2].sum()].max()) // each + 1, columns)
    for expert, first, pairs, _ in cut:
        own = order[first : first + pairs]
        y = numpy.empty((len(own), columns), "f4")
        y[:] = h[own // each]
        parts, bases = [], []
        for (weights, kind, rows, b, biased, out, stride), far in zip((rest[:7], rest[7:14]), nexts, strict=True):
            if rows and pairs:
                made = numpy.zeros((len(own), rows), "f4")
                held = numpy.stack([out[p * stride : p * stride + rows] for p in own])
                made[:] = held
                parts.append((weights[expert * far :], kind, rows, b[expert * bias_stride :], biased, made.reshape(-1), rows))
                bases.append((out, stride, rows))
        if parts:
            products(y, parts, mode, act, 1.0)
        for (out, stride, rows), part in zip(bases, parts, strict=True):
            if mode != 2 or out is bases[0][0]:
                for p, values in zip(own, part[5].reshape(-1, rows), strict=True):
                    out[p * stride : p * stride + rows] = values


@twin(r"linear_plain_(\w+)")
def linear_plain(kind, grid, xh, factor, count, columns, weights, rows, b, biased, out, stride, mode, scale):
    part = weights, by_name(kind).id, rows, b, biased, out, stride
    products(from_halves(xh, factor, count, columns), [part], mode, 0, scale, 1)
