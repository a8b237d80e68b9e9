"""attention_scores and attention_sums together, beside attention_tile: the same bits."""

import numpy
from cases import attention_tile
from cases.attention_row import long_runs
from pages import LAYER_AT, Attention, Same
from run import Addresses, Case

PAIRS, TURN, STAGES, TURNS = 16, 4, 3, 4
FEW = 64


def shared_bytes(dim):
    """Dynamic ones of attention_scores and of attention_sums."""
    slots = 64 if dim <= 128 else 32
    return (slots + PAIRS) * (2 * dim + 16), 4 * (2 * PAIRS * (TURN * slots // 2 + 4) + 20 * TURN * slots * STAGES)


def tiles_of(a, slots, rows):
    """Tiles of slots that `rows` rows may see together."""
    span = a.count if not a.window else min(a.count, abs(a.window) + rows)
    return -(-span // slots) + 1


def case(label, a, flags=0, reference=True, beside=True, few=FEW, **words):
    """Two launches, or with `beside` three. flags 16: of the plain rows only."""
    dim, slots = a.key_dim, 64 if a.key_dim <= 128 else 32
    rows, group = int(a.cells[4]) if flags & 16 else a.rows, a.heads // a.kv_heads
    tiles, fragments = tiles_of(a, slots, rows), -(-min(rows, few) * group // PAIRS)
    out = numpy.full((a.rows, a.heads * dim), numpy.nan, numpy.float32)
    wanted = a.wanted() if reference else None
    if reference and flags & 16:
        out[rows:] = wanted[rows:] = 0.5
    if reference and rows > few:
        out[:] = wanted[:] = 0.5
    held = min(PAIRS, min(rows, few) * group)
    scores = numpy.full(fragments * a.kv_heads * tiles * held * slots, numpy.nan, numpy.float32)
    tops = numpy.full(fragments * a.kv_heads * tiles * held, numpy.nan, numpy.float32)
    sinks, sunk = a.sink_words()
    args = [
        a.q, scores, tops, out, out.copy(), sinks, a.cells, a.positions, a.shared, a.branch,
        Addresses(a.pages(a.k, a.v, a.count)), a.q.shape[1], dim, held, a.heads, a.kv_heads, LAYER_AT, a.window, few, flags | sunk,
        a.scale, a.softcap, tiles, 0,
    ]  # fmt: skip
    shared = shared_bytes(dim)
    before = [(f"attention_scores_{slots}", (tiles, a.kv_heads, -(-fragments // TURNS)), shared[0], [0, 1, 2, *range(6, 22)])]
    if beside:
        grid = (-(-a.rows // 64), a.heads, 1)
        picks = [0, 4, *range(5, 12), *range(14, 18), 23, 19, 20, 21]
        before.append((f"attention_tile_{dim}", grid, attention_tile.shared_bytes(dim), picks))
    kind, more = (Same, {"found": 3, "like": 4}) if beside else (Case, {})
    return kind(
        label, f"attention_sums_{slots}", (-(-dim // 32), a.kv_heads, fragments), args, {3: wanted} if reference else {},
        shared=shared[1], tolerance=words.pop("tolerance", 1e-3), before=before,
        picks=[1, 2, 3, 5, *range(6, 11), 22, *range(12, 20)], **more, **words,
    )  # fmt: skip


def cases():
    for rows, first in ((1, 0), (1, 63), (2, 255), (3, 300), (9, 60)):
        yield case(f"{rows} rows after {first}", Attention(rows, first, 2, 1, 64, 64, seed=rows))
    for dim in (80, 96, 128, 256):
        yield case(f"dim {dim}", Attention(3, 130, 4, 2, dim, dim, seed=dim))
    for heads, kv_heads in ((2, 2), (3, 1), (7, 1), (16, 1)):
        yield case(f"{heads} heads of {kv_heads}", Attention(5, 12, heads, kv_heads, 64, 64, seed=heads))
    yield case("window and cap", Attention(7, 200, 2, 1, 64, 64, window=40, softcap=7.0))
    yield case("window of one", Attention(3, 60, 1, 1, 64, 64, window=1))
    yield case("chunks", Attention(6, 93, 1, 1, 64, 64, window=-48))
    yield case("large scores", Attention(2, 200, 2, 1, 64, 64, peak=40.0), tolerance=5e-3)
    yield case("the 3 plain rows of a tree", long_runs(12, 90, plain=3, heads=2), flags=16)
    yield case("sinks, window and cap", Attention(5, 200, 2, 1, 64, 64, window=40, softcap=7.0, sinks=True))
    yield case("more rows than few", Attention(3, 20, 1, 1, 64, 64), few=2, beside=False)
    yield case("many turns", Attention(1, 1600, 2, 1, 64, 64))
    yield from large()


def large():
    """What a card is to be asked: whole models' heads behind long prompts."""
    for heads, dim in ((16, 128), (32, 128), (16, 64), (16, 96), (16, 80), (8, 256)):
        for rows, first in ((2, 1000), (16, 2485), (1, 200), (1, 2484), (25, 8000))[: 5 if dim == 128 else 2]:
            a = Attention(rows, first, heads, 8 if dim < 256 else 4, dim, dim, seed=rows)
            yield case(f"{heads} heads of {dim}, {rows} rows after {first}", a, reference=False, emulate=False)
    for words in ({"window": 512}, {"window": -512}, {"softcap": 30.0}, {"sinks": True}, {"peak": 30.0}):
        for dim in (64, 128, 256):
            a = Attention(5, 2485, 8, 4, dim, dim, **words)
            yield case(f"dim {dim}, {words}", a, reference=False, emulate=False)


def bench():
    for name, heads in (("0.6B", 16), ("4B and 8B", 32)):
        for rows, first in ((1, 200), (1, 1000), (1, 2485), (2, 2485), (16, 2485), (25, 2485), (64, 2485), (1, 8000)):
            a = Attention(rows, first, heads, 8, 128, 128)
            yield case(f"{name} {rows} rows after {first}", a, reference=False, beside=False)
            yield attention_tile.case(f"{name} {rows} rows after {first}", a, reference=False)
