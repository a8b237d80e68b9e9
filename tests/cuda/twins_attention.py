"""Twins of the kernels of attention, over keys and values and over latent vectors; see twins.py."""

import numpy
from twins import reference, rows_of, turned, twin

Q_NORM, K_NORM, NORM_AFTER, NEOX, PARTED, INPUTS, SINKS, REST = 1, 2, 4, 8, 16, 32, 128, 256  # flags of attention
APART = 1  # flag of latent_attention_tile
PAGE, PLAIN, RING = 256, 4, 1024


@twin(r"attention_inputs_\d+")
def attention_inputs(
    grid, q, k, v, q_norm, k_norm, angles, cells, pages, rest, q_stride, k_stride, v_stride, heads, kv_heads, key_dim, value_dim,
    pairs, layer_at, flags, eps,
):  # fmt: skip
    rows, first = int(cells[0]), int(cells[1])
    where = Cache(pages, layer_at, kv_heads, key_dim, value_dim)
    normed = (q, q_stride, heads, q_norm, flags & Q_NORM), (k, k_stride, kv_heads, k_norm, flags & K_NORM)
    owns, made = k.size > 0, []  # else nothing goes to the cache
    assert owns or not kv_heads, "a block would read keys that are not there"
    for source, stride, count, norm, wanted in normed if owns else normed[:1]:
        x = strided(source, rows, stride, count * key_dim).reshape(rows, count, key_dim)
        if wanted and not flags & NORM_AFTER:
            x = head_normed(x, norm, eps)
        x = turned(x, angles, pairs, flags & NEOX) if pairs else x
        if wanted and flags & NORM_AFTER:
            x = head_normed(x, norm, eps)
        made.append(x.reshape(rows, -1))
    for row in range(rows):
        q[row * q_stride : row * q_stride + heads * key_dim] = made[0][row]
        if not owns:
            continue
        mine = made[1][row], v[row * v_stride : row * v_stride + kv_heads * value_dim]
        where.put(first + row, *mine)
        if flags & REST:
            for ring, values in zip(rings(rest, kv_heads, key_dim, value_dim), mine, strict=True):
                ring[:, (first + row) % RING] = (values - halved(values)).reshape(kv_heads, -1)


def halved(x):
    return numpy.clip(x, -65504, 65504).astype("f2").astype("f4")


def rings(rest, kv_heads, key_dim, value_dim):
    """What float16 leave of keys and of values: float16 [kv_heads, RING, dim]."""
    at, found = 0, []
    for dim in (key_dim, value_dim):
        count = kv_heads * RING * dim
        found.append(rest.view("f2")[at : at + count].reshape(kv_heads, RING, dim))
        at += count
    return found


def strided(x, rows, stride, count):
    return numpy.stack([x[row * stride : row * stride + count] for row in range(rows)])


def head_normed(x, w, eps):
    return reference("head_rmsnorm")(x, w[: x.shape[-1]], heads=x.shape[1], head_dim=x.shape[2], eps=eps).reshape(x.shape)


class Cache:
    """Keys and values of one layer in its pages."""

    def __init__(self, pages, layer_at, kv_heads, key_dim, value_dim):
        self.kinds = []
        at = layer_at * 512
        for dim in (key_dim, value_dim):
            size = kv_heads * PAGE * dim * 2
            self.kinds.append([p.view("u1")[at : at + size].view("f2").reshape(kv_heads, PAGE, dim) for p in pages.arrays])
            at += size

    def put(self, slot, *made):
        for kind, values in zip(self.kinds, made, strict=True):
            heads, _, dim = kind[0].shape
            kind[slot // PAGE][:, slot % PAGE] = numpy.clip(values.reshape(heads, dim), -65504, 65504)

    def get(self, slots):
        """float32 keys and values [slots, heads * dim] of the first slots."""
        all_of = (numpy.concatenate(kind, 1)[:, :slots] for kind in self.kinds)
        return [x.transpose(1, 0, 2).reshape(slots, -1).astype("f4") for x in all_of]


def attend(q, out, sinks, cells, state, pages, q_stride, sizes, layer_at, window, flags, scale, cap, some, runs=(), rest=None):
    """Attention of the rows in `some`."""
    heads, kv_heads, key_dim, value_dim = sizes
    positions, shared, branch = state
    rows, first = int(cells[0]), int(cells[1])
    keys, values = Cache(pages, layer_at, kv_heads, key_dim, value_dim).get(first + rows)
    if not len(some):
        return
    if flags & REST:
        own = numpy.arange(first, first + rows) % RING
        for kind, ring in zip((keys, values), rings(rest, kv_heads, key_dim, value_dim), strict=True):
            kind[first:] += ring[:, own].astype("f4").transpose(1, 0, 2).reshape(rows, -1)
    x = numpy.stack([q[row * q_stride : row * q_stride + heads * key_dim] for row in some])
    words = {"heads": heads, "kv_heads": kv_heads, "key_dim": key_dim, "value_dim": value_dim, "scale": scale, "softcap": cap}
    words |= {"slots": [first + row for row in some], "positions": [int(positions[row]) for row in some]}
    words |= {"window": max(window, 0), "chunk": max(-window, 0)}
    words |= {"shared": [int(shared[row]) for row in some], "branch": [int(branch[row]) for row in some]}
    words |= {"runs": [runs[row] for row in some] if runs else ()}
    found = reference("attention")(x, keys, values, sinks[:heads] if flags & SINKS else None, **words)
    rows_of(out, rows, heads * value_dim)[some[0] : some[-1] + 1] = found


@twin(r"attention_tile_(\d+)")
def attention_tile(
    dim, grid, q, out, sinks, cells, positions, shared, branches, pages, q_stride, heads, kv_heads, layer_at, window, few, flags,
    scale, cap,
):  # fmt: skip
    some = range(int(cells[PLAIN] if flags & PARTED else cells[0]))
    if len(some) <= few:
        return
    sizes, state = (heads, kv_heads, int(dim), int(dim)), (positions, shared, branches)
    attend(q, out, sinks, cells, state, pages, q_stride, sizes, layer_at, window, flags, scale, cap, some)


QUERIES = {}  # place of the scores -> the queries, scale and cap


@twin(r"attention_scores_\d+")
def attention_scores(
    grid, q, scores, tops, cells, positions, shared, branches, pages, q_stride, dim, held, heads, kv_heads, layer_at, window, few,
    flags, scale, cap,
):  # fmt: skip
    """What the scores are made from, for `attention_sums`, which does all."""
    rows = int(cells[PLAIN] if flags & PARTED else cells[0])
    if 0 < rows <= few:
        assert grid[0] * (64 if dim <= 128 else 32) >= (min(cells[1], abs(window)) if window else cells[1])
        QUERIES[scores.ctypes.data] = strided(q, rows, q_stride, heads * dim).ravel(), float(scale), float(cap)


@twin(r"attention_sums_\d+")
def attention_sums(
    grid, scores, tops, out, sinks, cells, positions, shared, branches, pages, tiles, dim, held, heads, kv_heads, layer_at, window,
    few, flags,
):  # fmt: skip
    some = range(int(cells[PLAIN] if flags & PARTED else cells[0]))
    if 0 < len(some) <= few:
        sizes, state, stride = (heads, kv_heads, dim, dim), (positions, shared, branches), heads * dim
        q, scale, cap = QUERIES.pop(scores.ctypes.data)
        attend(q, out, sinks, cells, state, pages, stride, sizes, layer_at, window, flags, scale, cap, some)


@twin(r"attention_(row|tree)_\w+")
def attention_row(
    kind, grid, q, k, v, out, partials, counters, q_norm, k_norm, angles, sinks, cells, lists, positions, shared, branches, pages,
    rest, q_stride, heads, kv_heads, key_dim, value_dim, pairs, layer_at, window, tile, least, flags, scale, cap, eps,
):  # fmt: skip
    rows = int(cells[0])
    if flags & INPUTS:
        q = q.copy()  # the kernel keeps what it makes of it
        strides = q_stride, kv_heads * key_dim, kv_heads * value_dim
        sizes = heads, kv_heads, key_dim, value_dim, pairs, layer_at
        attention_inputs(grid, q, k, v, q_norm, k_norm, angles, cells, pages, rest, *strides, *sizes, flags, eps)
    runs = ()
    if kind == "tree":
        runs = [runs_of(lists, row, positions[row] - shared[row] - (cells[1] + row - branches[row])) for row in range(rows)]
    some = range(int(cells[PLAIN]) if flags & PARTED else 0, rows)
    sizes, state = (heads, kv_heads, key_dim, value_dim), (positions, shared, branches)
    attend(q, out, sinks, cells, state, pages, q_stride, sizes, layer_at, window, flags, scale, cap, some, runs, rest)


def runs_of(lists, row, left):
    """The pairs of first slot and end that hold `left` slots."""
    at, found = int(lists[row]), []
    while left > 0:
        first, count = int(lists[at]), int(lists[at + 1])
        found.append((first, first + count))
        at, left = at + 2, left - count
    return tuple(found)


@twin("latent_append")
def latent_append(grid, c, cells, pages, key_dim, layer_at):
    where = Cache(pages, layer_at, 1, key_dim, 0)
    for row in range(int(cells[0])):
        where.put(int(cells[1]) + row, c[row * key_dim : (row + 1) * key_dim], c[:0])


@twin("latent_attention")
def latent_attention(
    grid, q, out, cells, lists, positions, shared, branches, pages, partials, counters, splits, heads, key_dim, value_dim, layer_at,
    scale,
):  # fmt: skip
    state, sizes = (cells, lists, positions, shared, branches, pages), (heads, key_dim, value_dim, layer_at, scale)
    attend_latent(q, out, *state, *sizes, range(int(cells[0])))


@twin(r"latent_attention_tile_(\d+)_(\d+)")
def latent_attention_tile(
    key_dim, value_dim, grid, q, out, facts, cells, lists, positions, shared, branches, pages, heads, together, tokens, layer_at,
    flags, scale,
):  # fmt: skip
    state, sizes = (cells, lists, positions, shared, branches, pages), (heads, int(key_dim), int(value_dim), layer_at, scale)
    rows, plain = int(cells[0]), int(cells[PLAIN])
    some = {0: range(rows), PARTED: range(plain), APART: range(plain, rows)}[flags]
    if some:
        attend_latent(q, out, *state, *sizes, some)
    if grid[2] > 1:  # all of it in the first split
        facts[:] = 0
        facts[1 : 2 * rows * heads : 2] = 1


@twin("latent_attention_join")
def latent_attention_join(grid, sums, facts, out, value_dim, splits):
    items = grid[0] * grid[1]
    tops, totals = facts[: 2 * splits * items].reshape(splits, items, 2).transpose(2, 0, 1).astype("f8")
    weights = numpy.where(totals > 0, 2.0 ** (tops - numpy.where(totals > 0, tops, -numpy.inf).max(0)), 0)
    parts = sums[: splits * items * value_dim].reshape(splits, items, value_dim).transpose(2, 0, 1)
    mixed = numpy.where(weights > 0, parts * weights, 0).sum(1) / (weights * totals).sum(0)
    rows_of(out, items, value_dim)[:] = mixed.T


def attend_latent(q, out, cells, lists, positions, shared, branches, pages, heads, key_dim, value_dim, layer_at, scale, some):
    """Latent attention of the rows `some`."""
    rows, first = int(cells[0]), int(cells[1])
    keys, _ = Cache(pages, layer_at, 1, key_dim, 0).get(first + rows)
    left = [int(positions[r]) + 1 - int(shared[r]) - (first + r + 1 - int(branches[r])) for r in some]
    some_rows = slice(some[0], some[-1] + 1)
    words = {"heads": heads, "key_dim": key_dim, "value_dim": value_dim, "scale": scale, "slots": [first + row for row in some]}
    words |= {"positions": positions[some_rows], "shared": shared[some_rows], "branch": branches[some_rows]}
    words["runs"] = [runs_of(lists, row, more) for row, more in zip(some, left, strict=True)]
    found = reference("latent_attention")(rows_of(q, rows, heads * key_dim)[some_rows], keys, **words)
    rows_of(out, rows, heads * value_dim)[some_rows] = found
